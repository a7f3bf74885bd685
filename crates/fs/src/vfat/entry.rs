//! Directory entries: 32 bytes each, for a short name, a part of a long one, or a
//! volume's label (`struct msdos_dir_entry`, `struct msdos_dir_slot`).

use crate::file_system::{Civil, Timestamp};

use super::boot::ENTRY_BYTES;

/// Bytes of a directory at most (`FAT_MAX_DIR_SIZE`).
pub(super) const DIR_BYTES_MAX: u64 = 65536 * 32;
/// The first byte of an entry that was removed (`DELETED_FLAG`).
pub(super) const DELETED: u8 = 0xe5;

pub(super) const ATTRIBUTE_READ_ONLY: u8 = 0x01;
/// The entry holds the volume's label.
pub(super) const ATTRIBUTE_VOLUME: u8 = 0x08;
pub(super) const ATTRIBUTE_DIRECTORY: u8 = 0x10;
pub(super) const ATTRIBUTE_ARCHIVE: u8 = 0x20;
/// The entry holds a part of a long name (`ATTR_EXT`).
pub(super) const ATTRIBUTES_LONG: u8 = 0x0f;

/// The bytes of an entry.
pub(super) type DosEntry = [u8; ENTRY_BYTES as usize];

/// Whether an entry is free.
pub(super) const fn is_free(entry: &DosEntry) -> bool {
    entry[0] == 0 || entry[0] == DELETED
}

/// Whether an entry names a file or a directory.
pub(super) const fn is_file(entry: &DosEntry) -> bool {
    !is_free(entry) && entry[at::ATTRIBUTES] & ATTRIBUTE_VOLUME == 0
}

/// The short name of an entry.
pub(super) fn short_name(entry: &DosEntry) -> [u8; 11] {
    std::array::from_fn(|n| entry[n])
}

/// Whether an entry is `.` or `..`.
pub(super) fn is_dots(entry: &DosEntry) -> bool {
    matches!(&short_name(entry), b".          " | b"..         ")
}

/// Byte offsets of an entry's fields (`struct msdos_dir_entry`).
pub(super) mod at {
    pub(in crate::vfat) const ATTRIBUTES: usize = 11;
    pub(in crate::vfat) const CASE: usize = 12;
    pub(in crate::vfat) const CREATED_HUNDREDTHS: usize = 13;
    /// In an entry of a long name.
    pub(in crate::vfat) const LONG_CHECKSUM: usize = 13;
    pub(in crate::vfat) const CREATED_TIME: usize = 14;
    pub(in crate::vfat) const CREATED_DATE: usize = 16;
    pub(in crate::vfat) const ACCESSED_DATE: usize = 18;
    pub(in crate::vfat) const CLUSTER_HIGH: usize = 20;
    pub(in crate::vfat) const TIME: usize = 22;
    pub(in crate::vfat) const DATE: usize = 24;
    pub(in crate::vfat) const CLUSTER_LOW: usize = 26;
    pub(in crate::vfat) const SIZE: usize = 28;
}

/// Puts a file's first cluster into its entry.
pub(super) fn set_first_cluster(entry: &mut [u8], cluster: u32) {
    let [low, high] = [cluster as u16, (cluster >> 16) as u16].map(u16::to_le_bytes);
    entry[at::CLUSTER_LOW..at::CLUSTER_LOW + 2].copy_from_slice(&low);
    entry[at::CLUSTER_HIGH..at::CLUSTER_HIGH + 2].copy_from_slice(&high);
}

/// The entry of a new file or directory, still without its name.
pub(super) fn new_entry(is_dir: bool, first: u32, now: Timestamp) -> DosEntry {
    let mut entry = [0; ENTRY_BYTES as usize];
    entry[at::ATTRIBUTES] = if is_dir {
        ATTRIBUTE_DIRECTORY
    } else {
        ATTRIBUTE_ARCHIVE
    };
    let (date, time, hundredths) = to_fat_time(now);
    entry[at::CREATED_HUNDREDTHS] = hundredths;
    for (at, value) in [
        (at::CREATED_TIME, time),
        (at::CREATED_DATE, date),
        (at::ACCESSED_DATE, date),
        (at::TIME, time),
        (at::DATE, date),
    ] {
        entry[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    set_first_cluster(&mut entry, first);
    entry
}

/// The first second of a year.
const fn year_start(year: i64) -> i64 {
    let civil = Civil {
        year,
        month: 1,
        day: 1,
        second_of_day: 0,
    };
    civil.seconds()
}

/// Date, time and hundredths of a second as an entry holds them, in UTC. Years before
/// 1980 and after 2107 become the nearest that it can hold (`fat_time_unix2fat`).
pub(super) fn to_fat_time(time: Timestamp) -> (u16, u16, u8) {
    let seconds = time.seconds.clamp(year_start(1980), year_start(2108) - 1);
    let civil = Timestamp { seconds, ..time }.civil();
    let date = ((civil.year - 1980) << 9) | (civil.month << 5) | civil.day;
    let in_day = civil.second_of_day;
    let (hours, minutes) = (in_day / 3600, in_day / 60 % 60);
    let of_day = (hours << 11) | (minutes << 5) | (in_day % 60 / 2);
    let hundredths = in_day % 2 * 100 + i64::from(time.nanoseconds) / 10_000_000;
    (date as u16, of_day as u16, hundredths as u8)
}

/// The time of an entry's date and time (`fat_time_fat2unix`).
pub(super) fn from_fat_time(date: u16, time: u16) -> Timestamp {
    let (date, time) = (i64::from(date), i64::from(time));
    let civil = Civil {
        year: 1980 + (date >> 9),
        month: (date >> 5 & 15).clamp(1, 12),
        day: (date & 31).max(1),
        second_of_day: (time >> 11) * 3600 + (time >> 5 & 63) * 60 + (time & 31) * 2,
    };
    Timestamp {
        seconds: civil.seconds(),
        nanoseconds: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_entries_are_those_of_calendars() {
        let leap_day = Timestamp {
            seconds: 1_709_211_599,
            nanoseconds: 500_000_000,
        };
        // 2024-02-29 12:59:59.
        let date = 44 << 9 | 2 << 5 | 29;
        let time = 12 << 11 | 59 << 5 | 29;
        assert_eq!(to_fat_time(leap_day), (date, time, 150));
        assert_eq!(from_fat_time(date, time).seconds, 1_709_211_598);
        assert_eq!(to_fat_time(Timestamp::default()), (1 << 5 | 1, 0, 0));
    }
}
