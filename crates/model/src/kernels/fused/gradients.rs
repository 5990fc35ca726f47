//! How Burn works backward through the fused operations.
//!
//! Each keeps what it needs for its gradient in the checkpointer, and the cheap ones (activations and norms) can be computed
//! again: gradient checkpointing then drops their results.

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::retro_forward::RetroForward;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_flex::FlexTensor;

use super::{
    FusedOps, Values, attention, attention_shape, dense, depthwise_shape, like, modulated, rotate, shape_of, tensor,
    three, unfold,
};
use crate::kernels::cpu::{self, Modulation};
use crate::kernels::stft::{self, Stft};
use crate::kernels::unfold::Unfold;

#[derive(Debug)]
struct Dense;

impl Backward<Flex, 3> for Dense {
    type State = (NodeId, NodeId);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        dense_backward(
            ops.state,
            &ops.node_grad(grads),
            ops.parents.map(|parent| parent.map(|node| node.id)),
            grads,
            checkpointer,
        );
    }
}

#[derive(Debug)]
struct DenseAdd;

impl Backward<Flex, 4> for DenseAdd {
    type State = (NodeId, NodeId);

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let [x, weight, bias, residual] = ops.parents.map(|parent| parent.map(|node| node.id));
        dense_backward(ops.state, &grad, [x, weight, bias], grads, checkpointer);
        if let Some(residual) = residual {
            grads.register::<Flex>(residual, grad);
        }
    }
}

fn dense_backward(
    (x, weight): (NodeId, NodeId),
    grad: &FlexTensor,
    parents: [Option<NodeId>; 3],
    grads: &mut Gradients,
    checkpointer: &mut Checkpointer,
) {
    let x: FlexTensor = checkpointer.retrieve_node_output(x);
    let weight: FlexTensor = checkpointer.retrieve_node_output(weight);
    let output = shape_of(&weight)[0];
    let (grad_x, grad_weight, grad_bias) =
        cpu::dense_backward(&Values::of(&x), &Values::of(&weight), &Values::of(grad), output);
    let found = [like(grad_x, &x), like(grad_weight, &weight), tensor(grad_bias, &[output])];
    register(parents, found, grads);
}

fn register<const N: usize>(parents: [Option<NodeId>; N], found: [FlexTensor; N], grads: &mut Gradients) {
    for (parent, found) in parents.into_iter().zip(found) {
        if let Some(parent) = parent {
            grads.register::<Flex>(parent, found);
        }
    }
}

/// Takes the gradient of an operation's result.
trait NodeGrad {
    fn node_grad(&self, grads: &mut Gradients) -> FlexTensor;
}

impl<S, const N: usize> NodeGrad for Ops<S, N> {
    fn node_grad(&self, grads: &mut Gradients) -> FlexTensor {
        grads.consume::<Flex>(&self.node)
    }
}

#[derive(Debug)]
struct Gelu;

#[derive(Debug)]
struct RetroGelu(NodeId);

impl RetroForward for RetroGelu {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let x: FlexTensor = states.get_state(&self.0);
        states.save(out_node, Flex::fused_gelu(x));
    }
}

impl Backward<Flex, 1> for Gelu {
    type State = NodeId;

    fn backward(self, ops: Ops<NodeId, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let x: FlexTensor = checkpointer.retrieve_node_output(ops.state);
        let found = like(cpu::gelu_backward(&Values::of(&x), &Values::of(&grad)), &x);
        register(ops.parents.map(|parent| parent.map(|node| node.id)), [found], grads);
    }
}

#[derive(Debug)]
struct Norm;

#[derive(Debug)]
struct RetroNorm([NodeId; 3]);

impl RetroForward for RetroNorm {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let [x, weight, bias] = self.0.map(|id| states.get_state::<FlexTensor>(&id));
        states.save(out_node, Flex::fused_norm(x, weight, bias));
    }
}

impl Backward<Flex, 3> for Norm {
    type State = [NodeId; 3];

    fn backward(self, ops: Ops<[NodeId; 3], 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let [x, weight, bias] = ops.state.map(|id| checkpointer.retrieve_node_output::<FlexTensor>(id));
        let found =
            cpu::norm_backward(&Values::of(&x), &Values::of(&weight), &Values::of(&bias), None, &Values::of(&grad));
        let found = [like(found.x, &x), like(found.weight, &weight), like(found.bias, &bias)];
        register(ops.parents.map(|parent| parent.map(|node| node.id)), found, grads);
    }
}

#[derive(Debug)]
struct ModulatedNorm;

#[derive(Debug)]
struct RetroModulatedNorm([NodeId; 5]);

impl RetroForward for RetroModulatedNorm {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let [x, weight, bias, scale, shift] = self.0.map(|id| states.get_state::<FlexTensor>(&id));
        states.save(out_node, modulated(&x, &weight, &bias, &scale, &shift));
    }
}

impl Backward<Flex, 5> for ModulatedNorm {
    type State = [NodeId; 5];

    fn backward(self, ops: Ops<[NodeId; 5], 5>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let [x, weight, bias, scale, shift] = ops.state.map(|id| checkpointer.retrieve_node_output::<FlexTensor>(id));
        let (scale_values, shift_values) = (Values::of(&scale), Values::of(&shift));
        let modulation = Modulation { scale: &scale_values, shift: &shift_values, time: shape_of(&x)[1] };
        let found = cpu::norm_backward(
            &Values::of(&x),
            &Values::of(&weight),
            &Values::of(&bias),
            Some(modulation),
            &Values::of(&grad),
        );
        let found = [
            like(found.x, &x),
            like(found.weight, &weight),
            like(found.bias, &bias),
            like(found.scale, &scale),
            like(found.shift, &shift),
        ];
        register(ops.parents.map(|parent| parent.map(|node| node.id)), found, grads);
    }
}

#[derive(Debug)]
struct DepthwiseConv;

impl Backward<Flex, 3> for DepthwiseConv {
    type State = (NodeId, NodeId, usize, Vec<usize>);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let (x, weight, dilation, lengths) = ops.state;
        let x: FlexTensor = checkpointer.retrieve_node_output(x);
        let weight: FlexTensor = checkpointer.retrieve_node_output(weight);
        let shape = depthwise_shape(&x, &weight, dilation, &lengths);
        let (grad_x, grad_weight, grad_bias) =
            shape.backward(&Values::of(&x), &Values::of(&weight), &Values::of(&grad));
        let found = [like(grad_x, &x), like(grad_weight, &weight), tensor(grad_bias, &[shape.channels])];
        register(ops.parents.map(|parent| parent.map(|node| node.id)), found, grads);
    }
}

#[derive(Debug)]
struct Unfolded;

impl Backward<Flex, 1> for Unfolded {
    /// Shape and time of what was unfolded.
    type State = (Unfold, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let ((shape, time), [batch, _, width]) = (ops.state, three(&grad));
        let channels = width / shape.taps;
        let found = tensor(shape.backward(&Values::of(&grad), time, channels), &[batch, time, channels]);
        register(ops.parents.map(|parent| parent.map(|node| node.id)), [found], grads);
    }
}

#[derive(Debug)]
struct Rotated;

impl Backward<Flex, 1> for Rotated {
    /// Cosines, sines, heads.
    type State = (FlexTensor, FlexTensor, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let (cos, sin, heads) = ops.state;
        let found = rotate(&grad, &cos, &sin, heads, true);
        register(ops.parents.map(|parent| parent.map(|node| node.id)), [found], grads);
    }
}

#[derive(Debug)]
struct Attention;

impl Backward<Flex, 3> for Attention {
    /// Queries, keys and values; bias; heads.
    type State = ([NodeId; 3], FlexTensor, usize);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let (inputs, bias, heads) = ops.state;
        let inputs = inputs.map(|id| checkpointer.retrieve_node_output::<FlexTensor>(id));
        let shape = attention_shape(&inputs[0], &inputs[1], heads);
        let [query, key, value] = inputs.each_ref().map(Values::of);
        let [a, b, c] = shape.backward([&query, &key, &value, &Values::of(&bias)], &Values::of(&grad));
        let found = [like(a, &inputs[0]), like(b, &inputs[1]), like(c, &inputs[2])];
        register(ops.parents.map(|parent| parent.map(|node| node.id)), found, grads);
    }
}

#[derive(Debug)]
struct StftMagnitudes;

impl Backward<Flex, 1> for StftMagnitudes {
    type State = (NodeId, Stft);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let (x, shape) = ops.state;
        let x: FlexTensor = checkpointer.retrieve_node_output(x);
        let samples = shape_of(&x)[1];
        let found = like(stft::magnitudes_backward(&shape, &Values::of(&x), samples, &Values::of(&grad)), &x);
        register(ops.parents.map(|parent| parent.map(|node| node.id)), [found], grads);
    }
}

#[derive(Debug)]
struct InverseStft;

impl Backward<Flex, 1> for InverseStft {
    /// Shape and number of frames: the transform is linear.
    type State = (Stft, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = ops.node_grad(grads);
        let (shape, frames) = ops.state;
        let rows = shape_of(&grad)[0];
        let found = stft::inverse_backward(&shape, &Values::of(&grad), frames);
        let found = tensor(found, &[rows, frames, 2 * shape.bins()]);
        register(ops.parents.map(|parent| parent.map(|node| node.id)), [found], grads);
    }
}

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

impl<C: CheckpointStrategy> FusedOps for Autodiff<Flex, C> {
    fn fused_dense(x: Tracked<C>, weight: Tracked<C>, bias: Tracked<C>) -> Tracked<C> {
        let y = dense(x.primitive(), weight.primitive(), bias.primitive(), None);
        match Dense.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = (prep.checkpoint(&x), prep.checkpoint(&weight));
                prep.finish(state, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_dense_add(x: Tracked<C>, weight: Tracked<C>, bias: Tracked<C>, residual: Tracked<C>) -> Tracked<C> {
        let y = dense(x.primitive(), weight.primitive(), bias.primitive(), Some(residual.primitive()));
        let nodes = [x.node(), weight.node(), bias.node(), residual.node()];
        match DenseAdd.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = (prep.checkpoint(&x), prep.checkpoint(&weight));
                prep.finish(state, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_gelu(x: Tracked<C>) -> Tracked<C> {
        let y = Flex::fused_gelu(x.primitive().clone());
        let prepared = Gelu.prepare::<C>([x.node()]).memory_bound().retro_forward(RetroGelu(x.id()));
        match prepared.parents([&x]).stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = prep.checkpoint(&x);
                prep.finish(state, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_norm(x: Tracked<C>, weight: Tracked<C>, bias: Tracked<C>) -> Tracked<C> {
        let y = Flex::fused_norm(x.primitive().clone(), weight.primitive().clone(), bias.primitive().clone());
        let inputs = [&x, &weight, &bias];
        let prepared = Norm.prepare::<C>(inputs.map(|input| input.node())).memory_bound();
        match prepared.retro_forward(RetroNorm(inputs.map(|input| input.id()))).parents(inputs).stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = inputs.map(|input| prep.checkpoint(input));
                prep.finish(state, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_modulated_norm(
        x: Tracked<C>,
        weight: Tracked<C>,
        bias: Tracked<C>,
        scale: Tracked<C>,
        shift: Tracked<C>,
    ) -> Tracked<C> {
        let inputs = [&x, &weight, &bias, &scale, &shift];
        let [a, b, c, d, e] = inputs.map(|input| input.primitive());
        let y = modulated(a, b, c, d, e);
        let prepared = ModulatedNorm.prepare::<C>(inputs.map(|input| input.node())).memory_bound();
        match prepared.retro_forward(RetroModulatedNorm(inputs.map(|input| input.id()))).parents(inputs).stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = inputs.map(|input| prep.checkpoint(input));
                prep.finish(state, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_depthwise(
        x: Tracked<C>,
        weight: Tracked<C>,
        bias: Tracked<C>,
        dilation: usize,
        lengths: Vec<usize>,
    ) -> Tracked<C> {
        let (a, b, c) = (x.primitive().clone(), weight.primitive().clone(), bias.primitive().clone());
        let y = Flex::fused_depthwise(a, b, c, dilation, lengths.clone());
        match DepthwiseConv.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = (prep.checkpoint(&x), prep.checkpoint(&weight), dilation, lengths);
                prep.finish(state, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_unfold(x: Tracked<C>, shape: Unfold) -> Tracked<C> {
        let (time, y) = (three(x.primitive())[1], unfold(x.primitive(), shape));
        match Unfolded.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((shape, time), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_rotate(x: Tracked<C>, cos: Tracked<C>, sin: Tracked<C>, heads: usize) -> Tracked<C> {
        let y = rotate(x.primitive(), cos.primitive(), sin.primitive(), heads, false);
        match Rotated.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((cos.primitive().clone(), sin.primitive().clone(), heads), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_attention(
        query: Tracked<C>,
        key: Tracked<C>,
        value: Tracked<C>,
        bias: Tracked<C>,
        heads: usize,
    ) -> Tracked<C> {
        let y = attention([&query, &key, &value, &bias].map(|input| input.primitive()), heads);
        match Attention.prepare::<C>([query.node(), key.node(), value.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let nodes = [&query, &key, &value].map(|input| prep.checkpoint(input));
                prep.finish((nodes, bias.primitive().clone(), heads), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_stft_magnitudes(x: Tracked<C>, shape: Stft) -> Tracked<C> {
        let y = Flex::fused_stft_magnitudes(x.primitive().clone(), shape);
        match StftMagnitudes.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = (prep.checkpoint(&x), shape);
                prep.finish(state, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn fused_inverse_stft(spectra: Tracked<C>, shape: Stft) -> Tracked<C> {
        let frames = shape_of(spectra.primitive())[1];
        let y = Flex::fused_inverse_stft(spectra.primitive().clone(), shape);
        match InverseStft.prepare::<C>([spectra.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((shape, frames), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }
}
