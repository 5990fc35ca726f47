//! New vectors whose values are written once, without zeros being written first.
//!
//! Memory without content is handed out as [`Unwritten`], and whoever gets a part of it must give it back as `&mut [f32]`:
//! safe code gets one of that place only by writing every value. A value that was forgotten is therefore a panic or does
//! not compile; none of the kernels can read it, and none needs `unsafe` for it.

use std::mem::MaybeUninit;

use rayon::prelude::*;

/// Memory that must be written before it can be read.
pub(super) struct Unwritten<'a>(&'a mut [MaybeUninit<f32>]);

impl<'a> Unwritten<'a> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Writes `value(n)` to each place `n`.
    #[inline(always)]
    pub(super) fn each(self, mut value: impl FnMut(usize) -> f32) -> &'a mut [f32] {
        for (n, place) in self.0.iter_mut().enumerate() {
            place.write(value(n));
        }
        // SAFETY: the loop has written all of it.
        unsafe { self.0.assume_init_mut() }
    }

    /// Copies values of the same number.
    #[inline(always)]
    pub(super) fn copy_of(self, values: &[f32]) -> &'a mut [f32] {
        self.0.write_copy_of_slice(values)
    }

    /// Has `work` write it in blocks of `size`, one after the other; the last one may be shorter.
    #[inline(always)]
    pub(super) fn blocks(
        self,
        size: usize,
        mut work: impl for<'b> FnMut(usize, Unwritten<'b>) -> &'b mut [f32],
    ) -> &'a mut [f32] {
        for (n, block) in self.0.chunks_mut(size).enumerate() {
            let place = block.as_ptr_range();
            let written = work(n, Unwritten(block));
            assert!(written.as_ptr_range() == (place.start.cast()..place.end.cast()), "it gave back another block");
        }
        // SAFETY: the blocks are all of it, and each came back as values.
        unsafe { self.0.assume_init_mut() }
    }
}

/// A vector that `work` writes in blocks of `size`, shared by all cores; the last one may be shorter.
pub(super) fn in_blocks(
    length: usize,
    size: usize,
    work: impl for<'a> Fn(usize, Unwritten<'a>) -> &'a mut [f32] + Sync,
) -> Vec<f32> {
    in_blocks_with(length, size, |n, block| (work(n, block), ())).0
}

/// Like [`in_blocks`], and what `work` found for each block, in their order.
pub(super) fn in_blocks_with<R: Send>(
    length: usize,
    size: usize,
    work: impl for<'a> Fn(usize, Unwritten<'a>) -> (&'a mut [f32], R) + Sync,
) -> (Vec<f32>, Vec<R>) {
    let mut values = Vec::with_capacity(length);
    let blocks = values.spare_capacity_mut()[..length].par_chunks_mut(size).enumerate();
    let found = blocks.map(|(n, block)| {
        let place = block.as_ptr_range();
        let (written, found) = work(n, Unwritten(block));
        assert!(written.as_ptr_range() == (place.start.cast()..place.end.cast()), "it gave back another block");
        found
    });
    let found = found.collect();
    // SAFETY: the blocks are all of it, and each came back as values.
    unsafe { values.set_len(length) };
    (values, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_where_it_was_written() {
        for (length, size) in [(0, 3), (1, 3), (9, 3), (10, 3), (100, 7), (5, 100)] {
            let values = in_blocks(length, size, |n, block| block.each(|i| (n * size + i) as f32));
            assert_eq!(values, (0..length).map(|n| n as f32).collect::<Vec<_>>());
            let (values, sizes) = in_blocks_with(length, size, |n, block| {
                let count = block.len();
                (block.blocks(2, |row, block| block.each(|i| (n * size + 2 * row + i) as f32)), count)
            });
            assert_eq!(values, (0..length).map(|n| n as f32).collect::<Vec<_>>());
            assert_eq!(sizes.iter().sum::<usize>(), length);
        }
    }

    #[test]
    #[should_panic(expected = "another block")]
    fn a_block_that_was_not_written_is_not_believed() {
        in_blocks(8, 4, |n, block| if n == 0 { block.each(|_| 1.0) } else { Box::leak(vec![1.0; block.len()].into()) });
    }

    #[test]
    #[should_panic(expected = "another block")]
    fn a_row_that_was_half_written_is_not_believed() {
        in_blocks(8, 8, |_, block| block.blocks(4, |_, row| &mut row.each(|_| 1.0)[1..]));
    }
}
