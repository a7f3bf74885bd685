//! A log that is appended to and flushed until the power fails: how much of it is left?

use blklab::{Nanos, PowerCut, Setup, SimulatedStorage};

const RECORD_BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut disk = SimulatedStorage::new(&Setup::named("nvme", "none")?, 42)?;
    // A drive that writes back in any order: half of what it had not written is gone, and of the
    // rest some blocks are.
    disk.set_power_cut(PowerCut {
        lost: 0.5,
        torn: 0.5,
    });
    let mut now = Nanos(0);
    let mut flushed = 0;
    for record in 1..=20u8 {
        let offset = u64::from(record - 1) * RECORD_BYTES as u64;
        disk.write(now, offset, &[record; RECORD_BYTES], false)?;
        now = disk.run_until_idle();
        if record % 8 == 0 {
            disk.flush(now);
            now = disk.run_until_idle();
            flushed = record;
        }
    }
    println!(
        "20 records written, {flushed} flushed, after {} us the power goes",
        now.0 / 1000
    );
    now = disk.cut_power(now);
    for record in 1..=20u8 {
        disk.read(
            now,
            u64::from(record - 1) * RECORD_BYTES as u64,
            RECORD_BYTES as u32,
        )?;
        now = disk.run_until_idle();
    }
    let mut ended = Vec::new();
    disk.take_ended(&mut ended);
    for (record, end) in (1..=20u8).zip(ended.iter().rev().take(20).rev()) {
        let data = end.result.clone().map_err(|status| format!("{status:?}"))?;
        let kept = data.iter().filter(|byte| **byte == record).count();
        println!("record {record:2}: {kept:4} of {RECORD_BYTES} bytes are there");
    }
    Ok(())
}
