//! Gradients of parameters, each as soon as it is complete: while the backward pass runs, other ranks can have it.
//!
//! Burn works a backward pass off by depth, the deepest operations first, and a parameter is at depth 0: an operation on a parameter alone would
//! be done last, whatever its layer. So a tap has a second parent, a tensor that the parameter is used beside. It is then one deeper than that tensor, and its
//! turn comes when the layer has had its own.
//!
//! Taps are there in every backward pass, with ranks or without: gradients that are added up in another order would be others in their last bits.

use std::cell::RefCell;
use std::collections::HashMap;

#[cfg(any(feature = "wgpu", feature = "cuda"))]
use burn::backend::Cube;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Backend, Dispatch, DispatchKindConversion, DispatchTensor, Flex, TensorMetadata, backend_extension,
};
use burn::module::{Param, ParamId};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};

/// What Burn does not have: somebody who hears of a gradient.
#[allow(unreachable_pub)] // the macro writes it so
#[backend_extension(Flex, Cube: cfg(any(feature = "wgpu", feature = "cuda")), Autodiff)]
pub trait TapOps: Backend {
    /// The parameter's value.
    fn tap(value: FloatTensor<Self>, beside: FloatTensor<Self>, parameter: u64) -> FloatTensor<Self>;
}

impl TapOps for Flex {
    fn tap(value: FloatTensor<Flex>, _: FloatTensor<Flex>, _: u64) -> FloatTensor<Flex> {
        value
    }
}

#[cfg(any(feature = "wgpu", feature = "cuda"))]
impl TapOps for Cube {
    fn tap(value: FloatTensor<Cube>, _: FloatTensor<Cube>, _: u64) -> FloatTensor<Cube> {
        value
    }
}

#[derive(Debug)]
struct Tap;

impl<B: Backend> Backward<B, 2> for Tap
where
    DispatchTensor: DispatchKindConversion<B>,
{
    /// The parameter.
    type State = u64;

    fn backward(self, ops: Ops<u64, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [Some(value), _] = ops.parents else { return };
        LISTENER.with_borrow_mut(|listener| match listener {
            None => grads.register::<B>(value.id, grad),
            Some(listener) => listener.hear(ops.state, as_matrix::<B>(grad)),
        });
    }
}

fn as_matrix<B: Backend>(grad: FloatTensor<B>) -> Tensor<2>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let shape = grad.shape();
    let all = shape.iter().product::<usize>();
    let rows = if shape.num_dims() == 1 { 1 } else { shape[0] };
    Tensor::from_primitive::<B>(B::float_reshape(grad, Shape::from([rows, all / rows.max(1)])))
}

impl<B: Backend, C: CheckpointStrategy> TapOps for Autodiff<B, C>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    fn tap(value: FloatTensor<Self>, beside: FloatTensor<Self>, parameter: u64) -> FloatTensor<Self> {
        let (value, node) = value.into_parts();
        match Tap.prepare::<C>([node, beside.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                LISTENER.with_borrow_mut(|listener| {
                    if let Some(listener) = listener {
                        listener.awaited.entry(parameter).or_default().uses += 1;
                    }
                });
                prepared.finish(parameter, value)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(value),
        }
    }
}

thread_local! {
    /// Burn runs a backward pass on the thread that asks for it.
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

struct Listener {
    awaited: HashMap<u64, Awaited>,
    complete: Box<dyn FnMut(ParamId, Tensor<2>)>,
}

#[derive(Default)]
struct Awaited {
    /// Places where the parameter is used and that have not been heard of.
    uses: usize,
    /// The sum of those that have.
    sum: Option<Tensor<2>>,
}

impl Listener {
    fn hear(&mut self, parameter: u64, grad: Tensor<2>) {
        let awaited = self.awaited.entry(parameter).or_default();
        awaited.uses = awaited.uses.saturating_sub(1);
        // As Burn adds them: the new one first.
        let sum = match awaited.sum.take() {
            Some(before) => grad + before,
            None => grad,
        };
        if awaited.uses > 0 {
            awaited.sum = Some(sum);
        } else {
            (self.complete)(ParamId::from(parameter), sum);
        }
    }
}

/// Does `work`, a forward and a backward pass. `complete` is called, in the middle of it, with each gradient that nothing will be added to any
/// more, as a matrix; that one is then not among those that the backward pass returns. Parameters without a tap stay there.
pub fn with_early_gradients<R>(complete: impl FnMut(ParamId, Tensor<2>) + 'static, work: impl FnOnce() -> R) -> R {
    /// Whatever happens, the next backward pass of this thread is one like any other.
    struct Listening;
    impl Drop for Listening {
        fn drop(&mut self) {
            LISTENER.take();
        }
    }
    let listening = Listening;
    LISTENER.set(Some(Listener { awaited: HashMap::new(), complete: Box::new(complete) }));
    let result = work();
    // Uses that the loss does not depend on are never heard of.
    if let Some(Listener { awaited, mut complete }) = LISTENER.take() {
        let mut left: Vec<(u64, Tensor<2>)> =
            awaited.into_iter().filter_map(|(parameter, awaited)| Some((parameter, awaited.sum?))).collect();
        left.sort_by_key(|(parameter, _)| *parameter);
        left.into_iter().for_each(|(parameter, sum)| complete(ParamId::from(parameter), sum));
    }
    drop(listening);
    result
}

/// A parameter as it is used beside a tensor. All uses of a parameter go through this, or none does.
pub(crate) fn tapped<const D: usize, const E: usize>(parameter: &Param<Tensor<D>>, beside: &Tensor<E>) -> Tensor<D> {
    let value = parameter.val();
    if !value.is_require_grad() {
        return value;
    }
    let tapped = Dispatch::tap(value.into_dispatch(), beside.clone().into_dispatch(), parameter.id.val());
    Tensor::from_dispatch(tapped)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use burn::tensor::{Device, TensorData};

    use super::*;

    fn parameter(device: &Device, first: f32) -> Param<Tensor<2>> {
        let values: Vec<f32> = (0..6).map(|n| first + n as f32).collect();
        Param::from_data(TensorData::new(values, [2, 3]), device)
    }

    fn numbers(tensor: Tensor<2>) -> Vec<f32> {
        tensor.into_data().try_into_vec().expect("single precision")
    }

    /// Two layers, the first of which is used twice, and one that the loss does not depend on in one of two uses.
    fn loss(parameters: &[Param<Tensor<2>>; 3], x: &Tensor<2>) -> Tensor<1> {
        let [first, second, third] = parameters;
        let hidden = x.clone() * tapped(first, x);
        let hidden = hidden.clone() + hidden.clone() * tapped(first, &hidden);
        let hidden = hidden.clone() * tapped(second, &hidden) + tapped(third, &hidden);
        let _ = x.clone() * tapped(third, x);
        hidden.sum()
    }

    #[test]
    fn gradients_are_heard_of_in_the_order_of_the_backward_pass_each_once_and_whole() {
        let device = Device::flex().autodiff();
        let parameters = [1.0, 0.5, 2.0].map(|first| parameter(&device, first));
        let x = Tensor::<2>::from_data(TensorData::new(vec![1.0f32, 2.0, -1.0, 0.5, 3.0, 1.5], [2, 3]), &device);
        let plain = loss(&parameters, &x).backward();
        let expected: Vec<Vec<f32>> =
            parameters.iter().map(|one| numbers(one.val().grad(&plain).expect("a gradient"))).collect();
        let heard: Rc<RefCell<Vec<(ParamId, Vec<f32>)>>> = Rc::default();
        let (hears, also) = (heard.clone(), heard.clone());
        let left = with_early_gradients(
            move |id, grad| hears.borrow_mut().push((id, numbers(grad))),
            || {
                let left = loss(&parameters, &x).backward();
                assert_eq!(also.borrow().len(), 2, "while the backward pass is under way");
                left
            },
        );
        let heard = heard.take();
        // The third is used in vain as well: that it is complete is known in the end.
        let order = [1, 0, 2].map(|n: usize| (parameters[n].id, expected[n].clone()));
        assert_eq!(heard, order);
        assert!(parameters.iter().all(|one| one.val().grad(&left).is_none()), "not said twice");
        let after = loss(&parameters, &x).backward();
        assert!(parameters[0].val().grad(&after).is_some(), "nobody listens any more");
    }
}
