//! Tests of reading frames: split anywhere, lying about their length, many at a time.

use std::time::Duration;

use tokio::io::{AsyncWriteExt, DuplexStream};

use super::*;

const LIMIT: usize = 100 * 1024 * 1024;

fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = i32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect()
}

fn reader(stream: DuplexStream) -> FrameReader<DuplexStream> {
    FrameReader::new(stream, LIMIT, ByteBudget::new(256 * 1024 * 1024))
}

#[tokio::test]
async fn frames_split_at_every_byte_come_whole() {
    let mut bytes = framed(&body(40));
    bytes.extend(framed(&[]));
    bytes.extend(framed(&body(3)));
    for cut in 0..=bytes.len() {
        let (mut near, far) = tokio::io::duplex(1024);
        let mut reader = reader(far);
        let (first, second) = (bytes[..cut].to_vec(), bytes[cut..].to_vec());
        let writer = tokio::spawn(async move {
            near.write_all(&first).await.unwrap();
            tokio::task::yield_now().await;
            near.write_all(&second).await.unwrap();
        });
        for expected in [40, 0, 3] {
            let frame = reader.next().await.unwrap().unwrap();
            assert_eq!(frame.bytes, body(expected), "cut at {cut}");
        }
        assert!(reader.next().await.unwrap().is_none());
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn bytes_one_at_a_time_make_a_frame() {
    let (mut near, far) = tokio::io::duplex(1);
    let mut reader = reader(far);
    let writer = tokio::spawn(async move { near.write_all(&framed(&body(300))).await });
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, body(300));
    writer.await.unwrap().unwrap();
}

#[tokio::test]
async fn frames_of_every_size_around_the_steps_come_whole() {
    let sizes = [
        FLOOR_BYTES - 5,
        FLOOR_BYTES - 4,
        FLOOR_BYTES - 3,
        FLOOR_BYTES + 1,
        FLOOR_BYTES * GROWTH - 4,
        FLOOR_BYTES * GROWTH,
        3_000_001,
        10,
        20_000_000,
        TRUST_BYTES_MAX,
    ];
    let (mut near, far) = tokio::io::duplex(100_000);
    let mut reader = reader(far);
    let writer = tokio::spawn(async move {
        for size in sizes {
            near.write_all(&framed(&body(size))).await.unwrap();
        }
    });
    for size in sizes {
        let frame = reader.next().await.unwrap().unwrap();
        assert_eq!(frame.bytes.len(), size);
        assert!(frame.bytes == body(size));
        assert!(frame.grant.bytes() >= size || size <= 2 * FLOOR_BYTES, "{size}");
    }
    writer.await.unwrap();
    assert_eq!(reader.budget.available(), reader.budget.total());
}

#[tokio::test]
async fn hostile_lengths_end_the_stream() {
    for length in [-1, i32::MIN, i32::MAX, i32::try_from(LIMIT).unwrap() + 1] {
        let (mut near, far) = tokio::io::duplex(64);
        near.write_all(&length.to_be_bytes()).await.unwrap();
        let error = reader(far).next().await.unwrap_err();
        assert!(matches!(error, Error::Frame(_)), "{length}: {error:?}");
    }
}

#[tokio::test]
async fn an_end_inside_a_frame_is_told_from_an_end_between_frames() {
    let (mut near, far) = tokio::io::duplex(64);
    near.write_all(&[0, 0, 0, 9, 1]).await.unwrap();
    drop(near);
    let error = reader(far).next().await.unwrap_err();
    assert!(matches!(error, Error::ClosedInsideFrame { received: 5 }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_inside_a_frame_is_given_up() {
    let (mut near, far) = tokio::io::duplex(64);
    near.write_all(&[0, 0, 0, 9, 1]).await.unwrap();
    let mut reader = reader(far).with_stall_timeout(Duration::from_secs(3));
    let error = reader.next().await.unwrap_err();
    assert!(matches!(error, Error::Stalled { received: 5, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_silent_between_frames_is_waited_for() {
    let (mut near, far) = tokio::io::duplex(64);
    let mut reader = reader(far).with_stall_timeout(Duration::from_secs(3));
    assert!(tokio::time::timeout(Duration::from_secs(60), reader.next()).await.is_err());
    near.write_all(&framed(&[7])).await.unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, [7][..]);
}

#[tokio::test]
async fn a_dropped_read_loses_nothing() {
    let (mut near, far) = tokio::io::duplex(64);
    let mut reader = reader(far);
    for byte in framed(&body(50)) {
        let moment = Duration::from_micros(10);
        assert!(tokio::time::timeout(moment, reader.next()).await.is_err());
        near.write_all(&[byte]).await.unwrap();
    }
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, body(50));
}

#[tokio::test]
async fn frames_beyond_the_budget_come_one_after_the_other() {
    let budget = ByteBudget::new(1024 * 1024);
    let size = 900_000;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let (mut near, far) = tokio::io::duplex(4096);
        tokio::spawn(async move { near.write_all(&framed(&body(size))).await });
        let mut reader = FrameReader::new(far, LIMIT, budget.clone());
        tasks.push(tokio::spawn(async move {
            let frame = reader.next().await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
            frame.bytes.len()
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap(), size);
    }
    assert_eq!(budget.available(), budget.total());
}

/// A connection that waits between frames keeps no buffer.
#[tokio::test]
async fn an_idle_connection_keeps_no_buffer() {
    let (mut near, far) = tokio::io::duplex(1024);
    let mut reader = reader(far);
    near.write_all(&framed(&body(100))).await.unwrap();
    reader.next().await.unwrap().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(1), reader.next()).await.is_err());
    assert_eq!(reader.buffer.capacity(), 0);
}
