//! Decompresses gzip (RFC 1952) and Zstandard (RFC 8878), which are recognized by the first bytes.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const BUFFER_BYTES: usize = 64 << 10;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The most that Zstandard may decompress to, for each compressed byte: as much as gzip can, whose
/// format allows no more (zlib's "Maximum Compression Factor"). A block of Zstandard of 4 bytes may
/// stand for 128 KiB, so a small file could keep a reader busy for hours.
const ZSTD_RATIO_MAX: u64 = 1032;
/// What it may decompress to beside that: one block.
const ZSTD_BLOCK_BYTES: u64 = 128 << 10;

/// Returns `source`, decompressed if it is compressed.
pub(super) fn unpacked(source: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    let mut magic = Vec::new();
    (&mut source)
        .take(ZSTD_MAGIC.len() as u64)
        .read_to_end(&mut magic)?;
    let is_gzip = magic.starts_with(GZIP_MAGIC);
    let is_zstd = magic.starts_with(ZSTD_MAGIC);
    let whole = io::Cursor::new(magic).chain(source);
    Ok(if is_gzip {
        let decoder = Named("gzip", MultiGzDecoder::new(whole));
        Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
    } else if is_zstd {
        let decoder = Named("zstd", Zstd::new(whole));
        Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
    } else {
        Box::new(whole)
    })
}

/// A reader of compressed data, in whose errors is the program that can test the file.
struct Named<R>(&'static str, R);

impl<R: Read> Read for Named<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Named(program, decoder) = self;
        decoder.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ => damaged(format!(
                "{error}: the file is cut short or damaged (`{program} -t` tests it)"
            )),
        })
    }
}

/// A reader of the frames of a Zstandard stream.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// Compressed bytes of the frames before this one.
    packed_bytes: u64,
    /// Bytes of all frames that were read.
    unpacked_bytes: u64,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            decoder: FrameDecoder::new(),
            packed_bytes: 0,
            unpacked_bytes: 0,
        }
    }

    /// Starts the next frame; returns `false` at the stream's end.
    fn next_frame(&mut self) -> io::Result<bool> {
        self.packed_bytes += self.decoder.bytes_read_from_source();
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => self.skip(u64::from(length))?,
                Err(FrameDecoderError::WindowSizeTooBig { requested, max }) => {
                    return Err(damaged(format!(
                        "its Zstandard window is of {requested} bytes, expected at most {max}: \
                         decompress it with `zstd -d --long=31` first"
                    )));
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.source).take(bytes), &mut io::sink())?;
        if skipped == bytes {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn check_ratio(&self) -> io::Result<()> {
        let packed_bytes = self.packed_bytes + self.decoder.bytes_read_from_source();
        if self.unpacked_bytes <= ZSTD_BLOCK_BYTES + ZSTD_RATIO_MAX * packed_bytes {
            return Ok(());
        }
        Err(damaged(format!(
            "its first {packed_bytes} bytes decompress to more than {ZSTD_RATIO_MAX} times as many: \
             if that is meant, decompress it with `zstd -d` first"
        )))
    }

    fn check_sum(&self) -> io::Result<()> {
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_none() || stored == self.decoder.get_calculated_checksum() {
            return Ok(());
        }
        Err(damaged("the checksum does not fit the content"))
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() && self.decoder.can_collect() == 0 {
            if !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, one);
                decoded.map_err(damaged)?;
                continue;
            }
            self.check_sum()?;
            if !self.next_frame()? {
                return Ok(0);
            }
        }
        let bytes = self.decoder.read(buffer)?;
        self.unpacked_bytes += bytes as u64;
        self.check_ratio()?;
        Ok(bytes)
    }
}

fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "read 4096\n" 200 times, compressed by zstd 1.5 with a checksum.
    const FRAME: &[u8] = &[
        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x8d, 0x00, 0x00, 0x50, 0x72, 0x65, 0x61, 0x64, 0x20,
        0x34, 0x30, 0x39, 0x36, 0x0a, 0x01, 0x00, 0xc3, 0xf7, 0x2f, 0x48, 0xd1, 0xe6, 0xfd, 0x8a,
    ];

    fn unpack(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        unpacked(io::Cursor::new(bytes))?.read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn frames_follow_each_other() {
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], &[7; 3]].concat();
        let stream = [FRAME, &skippable, FRAME].concat();
        let expected = "read 4096\n".repeat(400).into_bytes();
        assert_eq!(unpack(stream).unwrap(), expected);
    }

    #[test]
    fn a_damaged_or_cut_frame_is_an_error() {
        for end in 4..FRAME.len() {
            assert!(unpack(FRAME[..end].to_vec()).is_err(), "cut to {end} bytes");
        }
        let mut other = FRAME.to_vec();
        *other.last_mut().unwrap() ^= 1;
        let error = unpack(other).unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
    }

    /// A frame that says that its window is of `1 << window_log` bytes, of this many blocks of
    /// 128 KiB of one byte.
    fn frame_of_repeats(window_log: u8, blocks: usize) -> Vec<u8> {
        let header = [ZSTD_MAGIC, &[0, (window_log - 10) << 3]].concat();
        let block = |at: usize| {
            let header = (128 << 10 << 3) | (1 << 1) | u32::from(at + 1 == blocks);
            let [a, b, c, _] = header.to_le_bytes();
            [a, b, c, b'\n']
        };
        [header, (0..blocks).flat_map(block).collect()].concat()
    }

    #[test]
    fn a_small_frame_that_holds_very_much_is_refused() {
        let one = frame_of_repeats(17, 1);
        assert_eq!(unpack(one.clone()).unwrap().len(), 128 << 10);
        for many in [frame_of_repeats(17, 21), one.repeat(21)] {
            let error = unpack(many).unwrap_err().to_string();
            assert!(error.contains("more than 1032 times"), "{error}");
            assert!(error.contains("`zstd -d` first"), "{error}");
        }
        let error = unpack(frame_of_repeats(28, 1)).unwrap_err().to_string();
        assert!(error.contains("at most 134217728"), "{error}");
    }

    #[test]
    fn a_cut_gzip_file_is_called_so() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &[7; 5000]).unwrap();
        let whole = encoder.finish().unwrap();
        for end in 2..whole.len() {
            let error = unpack(whole[..end].to_vec()).expect_err("cut").to_string();
            assert!(error.contains("cut short or damaged (`gzip -t`"), "{error}");
        }
        assert_eq!(unpack(whole).unwrap(), [7; 5000]);
    }

    #[test]
    fn plain_text_stays() {
        assert_eq!(unpack(b"(".to_vec()).unwrap(), b"(");
        assert_eq!(unpack(Vec::new()).unwrap(), b"");
    }
}
