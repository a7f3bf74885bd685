//! A back end that keeps nothing: reads are zeroes.

use std::ffi::OsStr;

use blklab_blk::IoStatus;

use super::{
    Backend, BackendConfig, BackendInfo, BackendRequest, BackendType, Completed, HOLE, Operation,
    give_zeroes, push_extent, size_bytes,
};

pub(super) const TYPE: BackendType = BackendType {
    name: "null",
    value_name: "SIZE",
    help: "Keep no data: reads are zeroes",
    plural: "null",
    options: &[],
    configure: |value: &OsStr, _| Ok(null(size_bytes(value)?)),
};

/// A back end of this size that keeps nothing.
pub fn null(size_bytes: u64) -> BackendConfig {
    BackendConfig::new(move |options| Ok(Null(BackendInfo::of_memory(size_bytes, options))))
}

struct Null(BackendInfo);

impl Backend for Null {
    fn info(&self) -> BackendInfo {
        self.0
    }

    fn submit(&mut self, mut request: BackendRequest, completed: &mut Vec<Completed>) {
        if let (Operation::Extents { .. }, [range]) = (request.operation, &request.segments[..]) {
            push_extent(&mut request.extents, range.length as u32, HOLE);
        }
        completed.push(Completed {
            request,
            status: IoStatus::Ok,
        });
    }

    /// Zeroes are sent as if they were data, so that clients get what they would
    /// get of a drive.
    fn read_in_place(&self, _: u64, length: u64, take: &mut dyn FnMut(&[u8])) {
        give_zeroes(length, take);
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::OpenOptions;

    #[test]
    fn reads_are_zeroes_and_no_holes() {
        let options = OpenOptions {
            read_only: false,
            max_request_bytes: 1 << 20,
        };
        let null = null(1 << 40).open(options).expect("it opens");
        let mut out = Vec::new();
        null.read_in_place(1 << 39, 10, &mut |piece| out.extend_from_slice(piece));
        assert_eq!((out, null.memory_bytes()), (vec![0; 10], Some(0)));
        assert!(!null.is_hole(0, 4096));
    }
}
