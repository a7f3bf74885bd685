//! Sense data (SPC-4, section 4.5), with the codes of its annex on additional sense codes.

/// Bytes of sense data in the fixed format.
pub const SENSE_BYTES: usize = 18;
/// Bytes of sense data in the descriptor format without descriptors.
const DESCRIPTOR_SENSE_BYTES: usize = 8;
/// Response codes of current errors in the fixed and in the descriptor format.
const FIXED: u8 = 0x70;
const DESCRIPTOR: u8 = 0x72;
/// VALID: the information field is valid.
const VALID: u8 = 0x80;
/// SKSV and C/D: the field pointer is valid, and points into the command.
const POINTER_VALID: u8 = 0x80;
const POINTS_TO_COMMAND: u8 = 0x40;

/// Sense keys.
const NO_SENSE: u8 = 0x0;
const NOT_READY: u8 = 0x2;
const MEDIUM_ERROR: u8 = 0x3;
const HARDWARE_ERROR: u8 = 0x4;
const ILLEGAL_REQUEST: u8 = 0x5;
const DATA_PROTECT: u8 = 0x7;
const MISCOMPARE: u8 = 0xe;

/// The place of an error in a command or its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FieldPointer {
    in_command: bool,
    byte: u16,
}

/// The sense data of a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    key: u8,
    /// The additional sense code and its qualifier.
    code: (u8, u8),
    information: Option<u32>,
    field: Option<FieldPointer>,
}

impl Sense {
    const fn new(key: u8, code: u8, qualifier: u8) -> Sense {
        Sense {
            key,
            code: (code, qualifier),
            information: None,
            field: None,
        }
    }

    /// NO SENSE.
    pub(crate) const NONE: Sense = Sense::new(NO_SENSE, 0x00, 0x00);
    /// LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED.
    pub(crate) const STOPPED: Sense = Sense::new(NOT_READY, 0x04, 0x02);
    /// LOGICAL UNIT DOES NOT RESPOND TO SELECTION: the disk was removed.
    pub const GONE: Sense = Sense::new(NOT_READY, 0x05, 0x00);
    /// INVALID COMMAND OPERATION CODE.
    pub(crate) const UNKNOWN_COMMAND: Sense = Sense::new(ILLEGAL_REQUEST, 0x20, 0x00);
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub(crate) const OUT_OF_RANGE: Sense = Sense::new(ILLEGAL_REQUEST, 0x21, 0x00);
    /// PARAMETER LIST LENGTH ERROR.
    pub(crate) const LIST_LENGTH: Sense = Sense::new(ILLEGAL_REQUEST, 0x1a, 0x00);
    /// INVALID FIELD IN COMMAND INFORMATION UNIT: there is less data than the command needs.
    pub(crate) const TOO_LITTLE_DATA: Sense = Sense::new(ILLEGAL_REQUEST, 0x0e, 0x03);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub(crate) const NOT_SAVED: Sense = Sense::new(ILLEGAL_REQUEST, 0x39, 0x00);
    /// WRITE PROTECTED.
    pub(crate) const WRITE_PROTECTED: Sense = Sense::new(DATA_PROTECT, 0x27, 0x00);
    /// SPACE ALLOCATION FAILED WRITE PROTECT.
    pub(crate) const NO_SPACE: Sense = Sense::new(DATA_PROTECT, 0x27, 0x07);
    /// INTERNAL TARGET FAILURE.
    pub(crate) const INTERNAL: Sense = Sense::new(HARDWARE_ERROR, 0x44, 0x00);

    /// INVALID FIELD IN CDB, without the place of the error.
    pub(crate) const INVALID_FIELD: Sense = Sense::new(ILLEGAL_REQUEST, 0x24, 0x00);

    /// INVALID FIELD IN CDB, with the byte in error.
    pub(crate) const fn invalid_field(byte: u16) -> Sense {
        let mut sense = Sense::INVALID_FIELD;
        sense.field = Some(FieldPointer {
            in_command: true,
            byte,
        });
        sense
    }

    /// INVALID FIELD IN PARAMETER LIST, with the byte in error.
    pub(crate) const fn invalid_parameter(byte: u16) -> Sense {
        let mut sense = Sense::new(ILLEGAL_REQUEST, 0x26, 0x00);
        sense.field = Some(FieldPointer {
            in_command: false,
            byte,
        });
        sense
    }

    /// UNRECOVERED READ ERROR, at or after a block.
    pub(crate) fn read_error(lba: u64) -> Sense {
        Sense {
            information: u32::try_from(lba).ok(),
            ..Sense::new(MEDIUM_ERROR, 0x11, 0x00)
        }
    }

    /// WRITE ERROR, at or after a block.
    pub(crate) fn write_error(lba: u64) -> Sense {
        Sense {
            information: u32::try_from(lba).ok(),
            ..Sense::new(MEDIUM_ERROR, 0x0c, 0x00)
        }
    }

    /// MISCOMPARE DURING VERIFY OPERATION, with the offset of the first different byte.
    pub(crate) fn miscompare(at: u64) -> Sense {
        Sense {
            information: u32::try_from(at).ok(),
            ..Sense::new(MISCOMPARE, 0x1d, 0x00)
        }
    }

    /// Returns it in the fixed format.
    pub fn fixed(&self) -> [u8; SENSE_BYTES] {
        let mut bytes = [0; SENSE_BYTES];
        bytes[0] = FIXED;
        bytes[2] = self.key;
        if let Some(information) = self.information {
            bytes[0] |= VALID;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = (SENSE_BYTES - 8) as u8;
        (bytes[12], bytes[13]) = self.code;
        if let Some(FieldPointer { in_command, byte }) = self.field {
            bytes[15] = POINTER_VALID;
            if in_command {
                bytes[15] |= POINTS_TO_COMMAND;
            }
            bytes[16..].copy_from_slice(&byte.to_be_bytes());
        }
        bytes
    }

    /// Returns it in the descriptor format, without descriptors.
    pub(crate) fn descriptor(&self) -> [u8; DESCRIPTOR_SENSE_BYTES] {
        let (code, qualifier) = self.code;
        [DESCRIPTOR, self.key, code, qualifier, 0, 0, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_data_has_spc_s_layout() {
        let refused = Sense::invalid_field(0x0102).fixed();
        assert_eq!(
            refused,
            [
                0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xc0, 1, 2
            ]
        );
        let differs = Sense::miscompare(0x0a0b_0c0d).fixed();
        assert_eq!(
            differs,
            [
                0xf0, 0, 0xe, 0xa, 0xb, 0xc, 0xd, 10, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0
            ]
        );
        // An address that does not fit is left out.
        assert_eq!(Sense::read_error(1 << 32).fixed()[0], 0x70);
        assert_eq!(Sense::STOPPED.descriptor(), [0x72, 2, 4, 2, 0, 0, 0, 0]);
    }
}
