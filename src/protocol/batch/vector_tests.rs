//! Batches that kafka-clients 4.4 built (`vectors/kafka_4_4_*.bin`): three records in every
//! compression at offset 7, leader epoch 3, producer 9 with epoch 2 and sequence 5,
//! transactional; and a COMMIT marker.

use super::*;
use crate::control::{
    ControlRecord, EndTransactionMarker, TransactionEnd, end_transaction_marker,
};
use crate::record::RecordHeader;

const VECTORS: [(Compression, &[u8]); 5] = [
    (Compression::None, include_bytes!("vectors/kafka_4_4_none.bin")),
    (Compression::Gzip, include_bytes!("vectors/kafka_4_4_gzip.bin")),
    (Compression::Snappy, include_bytes!("vectors/kafka_4_4_snappy.bin")),
    (Compression::Lz4, include_bytes!("vectors/kafka_4_4_lz4.bin")),
    (Compression::Zstd, include_bytes!("vectors/kafka_4_4_zstd.bin")),
];

fn sample() -> BatchBuilder {
    let mut builder = BatchBuilder::new()
        .base_offset(Offset(7))
        .leader_epoch(LeaderEpoch(3))
        .producer(ProducerId(9), ProducerEpoch(2), Sequence(5))
        .transactional();
    let header = |value| [RecordHeader { key: Bytes::from_static(b"h"), value }];
    let value = Some(&b"valuevaluevaluevaluevalue"[..]);
    let (none, some) = (header(None), header(Some(Bytes::from_static(&[1, 2]))));
    builder.append(TimestampMs(1_000), Some(b"key0"), value, &none);
    builder.append(TimestampMs(1_005), None, value, &some);
    builder.append(TimestampMs(1_002), Some(b"key2"), None, &some);
    builder
}

#[test]
fn kafkas_batches_are_read_in_every_compression() {
    let expected: Vec<_> = sample().build_batch().records().unwrap().map(Result::unwrap).collect();
    for (compression, bytes) in VECTORS {
        let batch = RecordBatch::parse(Bytes::from_static(bytes)).unwrap();
        batch.verify_crc().unwrap();
        assert_eq!(batch.header.compression().unwrap(), compression);
        assert_eq!(batch.header.last_sequence(), Sequence(7));
        let records: Vec<_> = batch.records().unwrap().map(Result::unwrap).collect();
        assert_eq!(records, expected, "{compression}");
        let sent = batch.at(Offset::ZERO, LeaderEpoch::NONE);
        validate_produced(&sent.bytes, &ProduceRules::default()).unwrap();
    }
}

#[test]
fn a_built_batch_has_kafkas_bytes() {
    assert_eq!(sample().build(), VECTORS[0].1);
}

#[test]
fn a_marker_has_kafkas_bytes() {
    let kafkas = Bytes::from_static(include_bytes!("vectors/kafka_4_4_commit.bin"));
    let marker = EndTransactionMarker {
        end: TransactionEnd::Commit,
        producer_id: ProducerId(9),
        producer_epoch: ProducerEpoch(2),
        coordinator_epoch: 6,
        timestamp: TimestampMs(2_000),
    };
    let ours = RecordBatch::parse(end_transaction_marker(&marker)).unwrap();
    assert_eq!(ours.at(Offset(4), LeaderEpoch(1)).bytes, kafkas);
    let batch = RecordBatch::parse(kafkas).unwrap();
    let end = TransactionEnd::Commit;
    let read = ControlRecord::EndTransaction { end, coordinator_epoch: 6 };
    assert_eq!(ControlRecord::of_batch(&batch).unwrap(), Some(read));
}
