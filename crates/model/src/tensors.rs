//! Tensors by name on the host, and the safetensors files they are kept in. Without Burn, so that the fuzz targets can read
//! files as the program does.

use std::collections::BTreeMap;
use std::fmt;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// A tensor on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Its shape, as in PyTorch.
    pub shape: Vec<usize>,
    /// Its values, the last dimension first.
    pub values: Vec<f32>,
}

/// Tensors by name.
pub type Tensors = BTreeMap<String, HostTensor>;

/// Why weights cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsError {
    /// Not a safetensors file, or a damaged one.
    Format(String),
    /// Other parameters than the model has: what differs, one line each.
    Different(Vec<String>),
}

impl fmt::Display for WeightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightsError::Format(message) => write!(f, "not a file of weights: {message}"),
            WeightsError::Different(lines) => {
                write!(f, "the weights do not fit the model")?;
                lines.iter().take(8).try_for_each(|line| write!(f, "\n  {line}"))?;
                if lines.len() > 8 {
                    write!(f, "\n  and {} more", lines.len() - 8)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for WeightsError {}

/// The bytes of a safetensors file.
pub fn to_bytes(tensors: &Tensors) -> Result<Vec<u8>, WeightsError> {
    let bytes: Vec<(&str, &[usize], Vec<u8>)> = (tensors.iter())
        .map(|(name, tensor)| {
            (name.as_str(), &tensor.shape[..], tensor.values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let views: Result<Vec<_>, _> = (bytes.iter())
        .map(|(name, shape, bytes)| TensorView::new(Dtype::F32, shape.to_vec(), bytes).map(|view| (name, view)))
        .collect();
    let format = |error: safetensors::SafeTensorError| WeightsError::Format(error.to_string());
    safetensors::serialize(views.map_err(format)?, None).map_err(format)
}

/// The tensors of a safetensors file.
pub fn from_bytes(bytes: &[u8]) -> Result<Tensors, WeightsError> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| WeightsError::Format(error.to_string()))?;
    (file.iter())
        .map(|(name, view)| {
            if view.dtype() != Dtype::F32 {
                return Err(WeightsError::Format(format!("{name} is {:?}, not F32", view.dtype())));
            }
            let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            Ok((name.to_owned(), HostTensor { shape: view.shape().to_vec(), values }))
        })
        .collect()
}
