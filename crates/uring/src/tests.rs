//! Tests of every engine with a real file.

use std::fs::File;
use std::sync::Arc;

use super::*;

/// More requests than any engine holds at once.
const MANY: u64 = 3 * 256;

fn piece(byte: u8, len: usize) -> Piece {
    Piece {
        memory: vec![byte; len + 10],
        start: 5,
        len,
    }
}

fn wait(engine: &mut dyn Engine, count: usize) -> Vec<Completed> {
    let mut done = Vec::new();
    while done.len() < count {
        engine.take_completed(&mut done).expect("it works");
    }
    done
}

/// The engines that this machine supports.
fn engines(file: &Arc<File>) -> Vec<Box<dyn Engine>> {
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    match Ring::new(Arc::clone(file)) {
        Ok(ring) => engines.push(Box::new(ring)),
        Err(error) => blklab_judges::not_possible(&format!("no io_uring: {error}")),
    }
    match Aio::new(Arc::clone(file)) {
        Ok(aio) => engines.push(Box::new(aio)),
        Err(error) => blklab_judges::not_possible(&format!("no libaio: {error}")),
    }
    engines
}

#[test]
fn what_is_written_is_read() {
    let file = Arc::new(tempfile::tempfile().expect("a file"));
    for mut engine in engines(&file) {
        let engine = engine.as_mut();
        file.set_len(0).expect("emptied");
        for i in 0..MANY {
            let pieces = vec![piece(i as u8, 100), piece((i as u8).wrapping_add(1), 156)];
            let durable = i % 50 == 0;
            engine.submit(i, Action::Write { durable }, i * 256, pieces);
        }
        engine.kick().expect("submitted");
        let done = wait(engine, MANY as usize);
        assert!(done.iter().all(|one| one.result.is_ok()));
        engine.submit(1, Action::Sync, 0, Vec::new());
        engine.kick().expect("submitted");
        assert!(wait(engine, 1)[0].result.is_ok());
        // The last piece is beyond the end.
        let at = (MANY - 1) * 256;
        let pieces = vec![piece(9, 100), piece(9, 156), piece(9, 64)];
        engine.submit(7, Action::Read, at, pieces);
        engine.kick().expect("submitted");
        let done = wait(engine, 1);
        assert_eq!(done[0].token, 7);
        let bytes = |n: usize| {
            let piece = &done[0].pieces[n];
            piece.memory[piece.start..piece.start + piece.len].to_vec()
        };
        assert_eq!(bytes(0), [(MANY - 1) as u8; 100]);
        assert_eq!(bytes(1), [MANY as u8; 156]);
        assert_eq!(bytes(2), [0; 64]);
        // The memory around a piece is not changed.
        assert_eq!(done[0].pieces[0].memory[..5], [9; 5]);
    }
}

#[test]
fn what_cannot_be_done_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, [0; 4096]).expect("written");
    let file = Arc::new(File::open(&path).expect("opened to read"));
    for mut engine in engines(&file) {
        let engine = engine.as_mut();
        let write = Action::Write { durable: false };
        engine.submit(3, write, 0, vec![piece(1, 512)]);
        engine.submit(4, Action::Read, 0, vec![piece(1, 512)]);
        engine.kick().expect("submitted");
        let mut done = wait(engine, 2);
        done.sort_by_key(|one| one.token);
        assert_eq!(done[0].result, Err(rustix::io::Errno::BADF));
        assert!(done[1].result.is_ok());
        assert_eq!(done[0].pieces[0].memory.len(), 522);
    }
}

#[test]
fn an_engine_that_goes_away_waits() {
    let file = Arc::new(tempfile::tempfile().expect("a file"));
    for mut engine in engines(&file) {
        file.set_len(0).expect("emptied");
        for i in 0..64 {
            let write = Action::Write { durable: false };
            engine.submit(i, write, i * 4096, vec![piece(1, 4096)]);
        }
        engine.kick().expect("submitted");
        drop(engine);
        assert_eq!(file.metadata().expect("its size").len(), 64 * 4096);
    }
}
