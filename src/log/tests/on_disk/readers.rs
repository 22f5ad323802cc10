//! Readers beside a writer that truncates: what they get was never replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{Error, Origin, ReadMode, ReadUpTo, ReadView};
use protocol::batch;
use protocol::ids::Offset;

use crate::setup::{append, ask, batch as records, lease, open};

/// Reads from the start to the end, again and again; how many reads there were.
fn read_on(view: &ReadView, stop: &AtomicBool) -> u64 {
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut offset = view.log_start();
        loop {
            let read = view.read(offset, 4_000, ReadUpTo::LogEnd, true, ReadMode::MayBlock);
            match read {
                Ok(read) if read.bytes.is_empty() => break,
                Ok(read) => {
                    reads += 1;
                    for one in batch::split(read.bytes.clone()) {
                        let one = one.expect("whole batches only");
                        one.verify_crc().expect("bytes of one writing only");
                        assert!(one.header.last_offset() >= offset);
                        offset = one.header.next_offset();
                    }
                }
                Err(Error::OffsetOutOfRange { .. } | Error::Contended { .. }) => break,
                Err(error) => panic!("{error} after {} truncations", view.truncations()),
            }
        }
    }
    reads
}

#[test]
fn readers_beside_truncations_never_see_replaced_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = open(folder.path());
    let log = lease(&dir);
    let view = Arc::clone(&log.view);
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (view, stop) = (Arc::clone(&view), Arc::clone(&stop));
            std::thread::spawn(move || read_on(&view, &stop))
        })
        .collect();
    for round in 0..300 {
        for at in 0..20 {
            append(&dir, &log, round, Origin::Client, records(round * 20 + at, -1, -1).build());
        }
        let (start, end) = (view.log_start().0, view.log_end().0);
        if round % 50 == 49 {
            ask(|reply| dir.reset(&log, Offset(end), reply)).unwrap();
        } else {
            let to = start + (end - start) * i64::from(round % 7) / 7;
            ask(|reply| dir.truncate(&log, Offset(to), reply)).unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().expect("no reader saw replaced bytes") > 0);
    }
}
