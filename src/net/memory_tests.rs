//! What hostile connections cost. A process of its own: the measure is the whole process's
//! memory.

use std::time::Duration;

use net::{ByteBudget, FrameReader};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

const LIMIT: usize = 100 * 1024 * 1024;

/// This process's resident memory, as Linux tells it.
fn resident_kib() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// 500 connections that each announce 100 MB and send nothing more cost under 32 MiB in all, both
/// when they stop after the length and when they send 1,000 bytes of the frame.
#[tokio::test]
async fn five_hundred_liars_cost_little() {
    for sent in [0, 1000] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let budget = ByteBudget::new(256 * 1024 * 1024);
        let before = resident_kib().unwrap();
        let mut kept = Vec::new();
        for _ in 0..500 {
            let mut liar = TcpStream::connect(address).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let mut reader = FrameReader::new(stream, LIMIT, budget.clone());
            liar.write_all(&100_000_000_i32.to_be_bytes()).await.unwrap();
            liar.write_all(&vec![1; sent]).await.unwrap();
            let reading = tokio::spawn(async move { reader.next().await.is_ok() });
            kept.push((liar, reading));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let cost = resident_kib().unwrap().saturating_sub(before);
        assert!(kept.iter().all(|(_, reading)| !reading.is_finished()));
        assert!(cost < 32 * 1024, "{cost} KiB");
        assert_eq!(budget.available(), budget.total());
    }
}
