//! Locks and threads: the standard library's, or shuttle's when the interleavings are model-checked.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{Mutex, MutexGuard},
    thread,
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{Mutex, MutexGuard},
    thread,
};

/// Locks, also after a panic of another holder: every state in this crate is valid between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
