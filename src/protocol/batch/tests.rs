//! Tests of batches: known bytes, round trips, every refusal, hostile bytes.

use proptest::prelude::*;

use super::*;
use crate::error_code::ErrorCode;
use crate::record::{Record, RecordHeader};

fn sample() -> BatchBuilder {
    BatchBuilder::new()
        .record(TimestampMs(100), Some(b"k1"), Some(b"v1"))
        .record(TimestampMs(103), None, Some(b"v2"))
        .record(TimestampMs(101), Some(b"k3"), None)
}

fn rules() -> ProduceRules {
    ProduceRules { now: TimestampMs(1_000), ..ProduceRules::default() }
}

fn refusal(bytes: &Bytes, rules: &ProduceRules) -> Refusal {
    validate_produced(bytes, rules).expect_err("the batch must be refused")
}

/// The batch with one header field changed and the checksum made anew.
fn altered(batch: &RecordBatch, alter: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut header = batch.header;
    alter(&mut header);
    rebuild(header, &batch.bytes[HEADER_BYTES..]).bytes
}

fn concat(parts: &[&[u8]]) -> Bytes {
    Bytes::from(parts.concat())
}

#[test]
fn the_header_has_kafkas_layout() {
    assert_eq!(HEADER_BYTES, 61);
    assert_eq!((MAGIC_AT, CRC_AT, ATTRIBUTES_AT, RECORD_COUNT_AT), (16, 17, 21, 57));
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let bytes = BatchBuilder::new()
        .base_offset(Offset(5))
        .leader_epoch(LeaderEpoch(3))
        .producer(ProducerId(9), ProducerEpoch(2), Sequence(7))
        .transactional()
        .record(TimestampMs(1_000), None, Some(b"x"))
        .build();
    let crc = crc32c(&bytes[21..]);
    let mut expected = vec![0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 57, 0, 0, 0, 3, 2];
    expected.extend_from_slice(&crc.to_be_bytes());
    expected.extend_from_slice(&[0, 0x10, 0, 0, 0, 0]);
    expected.extend_from_slice(&1_000i64.to_be_bytes());
    expected.extend_from_slice(&1_000i64.to_be_bytes());
    expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 0, 0, 0, 7, 0, 0, 0, 1]);
    expected.extend_from_slice(&[14, 0, 0, 0, 1, 2, b'x', 0]);
    assert_eq!(bytes, expected);
}

#[test]
fn the_prefix_is_all_that_an_append_rewrites() {
    let batch = sample().build_batch();
    let prefix = prefix(Offset(77), batch.header.batch_length, LeaderEpoch(4));
    let appended = concat(&[&prefix, &batch.bytes[PREFIX_BYTES..]]);
    let appended = RecordBatch::parse(appended).unwrap();
    appended.verify_crc().unwrap();
    assert_eq!(appended, batch.at(Offset(77), LeaderEpoch(4)));
    assert_eq!(appended.header.last_offset(), Offset(79));
    assert_eq!(appended.header.next_offset(), Offset(80));
}

#[test]
fn records_of_an_append_time_batch_share_its_time() {
    let batch = sample().build_batch();
    let batch = batch.with_timestamps(TimestampType::LogAppendTime, TimestampMs(500));
    batch.verify_crc().unwrap();
    let times: Vec<_> = batch.records().unwrap().map(|record| record.unwrap().timestamp).collect();
    assert_eq!(times, [TimestampMs(500); 3]);
}

#[test]
fn an_empty_batch_keeps_its_offsets() {
    let batch = BatchBuilder::new().base_offset(Offset(10)).last_offset_delta(4).build_batch();
    assert_eq!(batch.header.next_offset(), Offset(15));
    assert_eq!(batch.records().unwrap().count(), 0);
    batch.header.check_offsets().unwrap();
}

#[test]
fn the_delete_horizon_is_the_base_of_the_timestamps() {
    let batch = BatchBuilder::new()
        .delete_horizon(TimestampMs(900))
        .record(TimestampMs(100), Some(b"k"), None)
        .build_batch();
    assert_eq!(batch.header.delete_horizon(), Some(TimestampMs(900)));
    let record = batch.records().unwrap().next().unwrap().unwrap();
    assert_eq!(record.timestamp, TimestampMs(100));
}

#[test]
fn a_torn_tail_is_told_after_the_whole_batches() {
    let (one, two) = (sample().build(), sample().base_offset(Offset(3)).build());
    let both = concat(&[&one, &two]);
    for end in one.len() + 1..both.len() {
        let mut batches = split(both.slice(..end));
        assert_eq!(batches.next().unwrap().unwrap().bytes, one);
        assert_eq!(batches.position(), one.len());
        assert!(matches!(batches.next(), Some(Err(Error::Torn { .. }))), "{end}");
        assert!(batches.next().is_none());
    }
    assert_eq!(split(both).filter_map(Result::ok).count(), 2);
}

#[test]
fn old_formats_are_told_apart_from_garbage() {
    let mut bytes = sample().build().to_vec();
    for (magic, old) in [(0u8, true), (1, true), (3, false), (255, false)] {
        bytes[MAGIC_AT] = magic;
        let error = BatchHeader::parse(&bytes).unwrap_err();
        assert_eq!(matches!(error, Error::OldMagic { .. }), old, "{error}");
        assert_eq!(matches!(error, Error::UnknownMagic { .. }), !old, "{error}");
    }
}

#[test]
fn a_good_batch_keeps_the_clients_bytes() {
    for compression in Compression::ALL {
        let bytes = sample().compression(compression).build();
        let produced = validate_produced(&bytes, &rules()).unwrap();
        assert_eq!(produced.batch.bytes.as_ptr(), bytes.as_ptr());
        assert_eq!(produced.max_timestamp_delta, 1);
        assert_eq!(produced.plain_bytes, i64::try_from(sample().records_len()).unwrap());
    }
}

#[test]
fn the_number_and_format_of_batches_is_checked_first() {
    let batch = sample().build();
    assert_eq!(refusal(&Bytes::new(), &rules()).code(), ErrorCode::InvalidRecord);
    assert_eq!(
        refusal(&batch.slice(..batch.len() - 1), &rules()).code(),
        ErrorCode::InvalidRecord
    );
    assert_eq!(refusal(&concat(&[&batch, &batch]), &rules()).code(), ErrorCode::InvalidRecord);
    let mut bytes = batch.to_vec();
    bytes[MAGIC_AT] = 1;
    assert_eq!(refusal(&bytes.clone().into(), &rules()).code(), ErrorCode::InvalidRecord);
    bytes[MAGIC_AT] = 9;
    assert_eq!(refusal(&bytes.into(), &rules()).code(), ErrorCode::CorruptMessage);
    let trailing = concat(&[&batch, &batch[..30]]);
    assert!(validate_produced(&trailing, &rules()).is_ok(), "Kafka trims a torn tail");
}

#[test]
fn zstd_needs_produce_7() {
    let bytes = sample().compression(Compression::Zstd).build();
    let version = |produce_version| ProduceRules { produce_version, ..rules() };
    assert_eq!(refusal(&bytes, &version(6)).code(), ErrorCode::UnsupportedCompressionType);
    assert!(validate_produced(&bytes, &version(7)).is_ok());
}

#[test]
fn damaged_bytes_are_corrupt() {
    let mut bytes = sample().build().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(refusal(&bytes.into(), &rules()).code(), ErrorCode::CorruptMessage);
    let mut small = sample().build().to_vec();
    small[LENGTH_AT..LEADER_EPOCH_AT].copy_from_slice(&48i32.to_be_bytes());
    assert_eq!(refusal(&small.into(), &rules()).code(), ErrorCode::CorruptMessage);
}

#[test]
fn size_is_checked_against_the_topics_limit() {
    let bytes = sample().build();
    let limit = |max_message_bytes| ProduceRules { max_message_bytes, ..rules() };
    assert_eq!(refusal(&bytes, &limit(bytes.len() - 1)).code(), ErrorCode::MessageTooLarge);
    assert!(validate_produced(&bytes, &limit(bytes.len())).is_ok());
}

#[test]
fn only_records_of_compressed_batches_have_a_longest_length() {
    let limit =
        |decompressed_record_bytes_max| ProduceRules { decompressed_record_bytes_max, ..rules() };
    let bytes = sample().compression(Compression::Gzip).build();
    assert_eq!(refusal(&bytes, &limit(5)).code(), ErrorCode::InvalidRecord);
    assert!(validate_produced(&bytes, &limit(1_000)).is_ok());
    assert!(validate_produced(&sample().build(), &limit(5)).is_ok());
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let batch = sample().build_batch();
    let cases: [fn(&mut BatchHeader); 8] = [
        |header| header.base_offset = Offset(1),
        |header| header.record_count = 2,
        |header| header.record_count = 0,
        |header| header.record_count = -1,
        |header| header.last_offset_delta = 3,
        |header| header.last_offset_delta = -1,
        |header| header.attributes |= CONTROL_BIT,
        |header| header.producer_id = ProducerId(4),
    ];
    for (index, alter) in cases.into_iter().enumerate() {
        assert_eq!(
            refusal(&altered(&batch, alter), &rules()).code(),
            ErrorCode::InvalidRecord,
            "case {index}"
        );
    }
    let unknown = altered(&batch, |header| header.attributes |= 5);
    assert_eq!(refusal(&unknown, &rules()).code(), ErrorCode::UnsupportedCompressionType);
}

#[test]
fn record_counts_must_match_the_records() {
    let batch = sample().build_batch();
    let fewer = altered(&batch, |header| {
        (header.record_count, header.last_offset_delta) = (2, 1);
    });
    let more = altered(&batch, |header| {
        (header.record_count, header.last_offset_delta) = (4, 3);
    });
    for bytes in [fewer, more] {
        let refused = refusal(&bytes, &rules());
        assert!(matches!(refused, Refusal::Batch(Error::Record { .. })), "{refused}");
        assert_eq!(refused.code(), ErrorCode::InvalidRecord);
    }
}

#[test]
fn offsets_with_gaps_are_refused() {
    let mut builder = BatchBuilder::new().last_offset_delta(1);
    builder.append_at(0, TimestampMs(1), None, None, &[]);
    builder.append_at(2, TimestampMs(1), None, None, &[]);
    let refused = refusal(&builder.build(), &rules());
    assert!(matches!(refused, Refusal::OffsetGap { index: 1, offset_delta: 2 }), "{refused}");
    assert_eq!(refused.code(), ErrorCode::InvalidRecord);
}

#[test]
fn compacted_topics_need_keys() {
    let refused = refusal(&sample().build(), &ProduceRules { compacted: true, ..rules() });
    assert_eq!(refused.code(), ErrorCode::InvalidRecord);
    assert_eq!(refused.records().len(), 1);
    assert_eq!(refused.records()[0].index, 1);
}

#[test]
fn timestamps_out_of_bounds_are_refused() {
    let before = ProduceRules { timestamp_before_max_ms: 898, ..rules() };
    let refused = refusal(&sample().build(), &before);
    assert_eq!(refused.code(), ErrorCode::InvalidTimestamp);
    let indexes: Vec<_> = refused.records().iter().map(|record| record.index).collect();
    assert_eq!(indexes, [0, 2]);
    let after = ProduceRules { now: TimestampMs(50), timestamp_after_max_ms: 52, ..rules() };
    assert_eq!(refusal(&sample().build(), &after).records()[0].index, 1);
}

#[test]
fn append_time_replaces_the_producers_times() {
    let rules = ProduceRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
    let produced = validate_produced(&sample().build(), &rules).unwrap();
    produced.batch.verify_crc().unwrap();
    assert_eq!(produced.batch.header.max_timestamp, rules.now);
    assert_eq!(produced.batch.header.timestamp_type(), TimestampType::LogAppendTime);
    let sent = sample().append_time(TimestampMs(9)).build();
    assert_eq!(refusal(&sent, &rules).code(), ErrorCode::InvalidTimestamp);
}

#[test]
fn a_wrong_max_timestamp_is_set_right() {
    let wrong = altered(&sample().build_batch(), |header| header.max_timestamp = TimestampMs(999));
    let produced = validate_produced(&wrong, &rules()).unwrap();
    produced.batch.verify_crc().unwrap();
    assert_eq!(produced.batch.header.max_timestamp, TimestampMs(103));
}

#[test]
fn the_topics_compression_is_applied() {
    for compression in Compression::ALL {
        let rules = ProduceRules { compression: Some(compression), ..rules() };
        let bytes = sample().compression(Compression::Gzip).build();
        let produced = validate_produced(&bytes, &rules).unwrap();
        produced.batch.verify_crc().unwrap();
        assert_eq!(produced.batch.header.compression().unwrap(), compression);
        assert_eq!(produced.batch.records().unwrap().count(), 3);
    }
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let header = (any::<Vec<u8>>(), any::<Option<Vec<u8>>>())
        .prop_map(|(key, value)| RecordHeader { key: key.into(), value: value.map(Bytes::from) });
    let record = (
        0..1i64 << 50,
        any::<Option<Vec<u8>>>(),
        any::<Option<Vec<u8>>>(),
        proptest::collection::vec(header, 0..3),
    );
    proptest::collection::vec(record, 1..20).prop_map(|records| {
        (0..)
            .zip(records)
            .map(|(offset, (timestamp, key, value, headers))| Record {
                offset: Offset(offset),
                timestamp: TimestampMs(timestamp),
                key: key.map(Bytes::from),
                value: value.map(Bytes::from),
                headers,
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn a_built_batch_reads_back(
        records in records(),
        id in 0i16..5,
        epoch: i32,
        base in 0..1i64 << 60,
    ) {
        let mut builder = BatchBuilder::new()
            .leader_epoch(LeaderEpoch(epoch))
            .compression(Compression::from_id(id).unwrap());
        for record in &records {
            builder.append(
                record.timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers,
            );
        }
        let bytes = builder.build();
        let open = ProduceRules { timestamp_after_max_ms: i64::MAX, ..rules() };
        let produced = validate_produced(&bytes, &open).unwrap();
        prop_assert_eq!(&produced.batch.bytes, &bytes);
        let batch = RecordBatch::parse(bytes).unwrap();
        prop_assert_eq!(BatchHeader::parse(&batch.header.to_bytes()).unwrap(), batch.header);
        let read: Vec<_> = batch.records().unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(&read, &records);
        let moved = batch.at(Offset(base), LeaderEpoch(1));
        prop_assert!(moved.verify_crc().is_ok());
    }

    #[test]
    fn hostile_bytes_never_panic(
        records in records(),
        id in 0i16..5,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        seal: bool,
    ) {
        let mut builder = BatchBuilder::new().compression(Compression::from_id(id).unwrap());
        for record in &records {
            builder.append(
                record.timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers,
            );
        }
        let mut bytes = builder.build().to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if seal {
            let crc = crc32c(&bytes[ATTRIBUTES_AT..]);
            bytes[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
        } else {
            bytes.truncate(cut.index(bytes.len()));
        }
        let bytes = Bytes::from(bytes);
        let _ = validate_produced(&bytes, &rules());
        for batch in split(bytes).filter_map(Result::ok) {
            let _ = batch.header.check_offsets();
            let _ = batch.header.last_sequence();
            let _ = batch.verify_crc();
            if let Ok(records) = batch.records_within(1 << 20) {
                let _ = records.count();
            }
            let _ = crate::control::ControlRecord::of_batch(&batch);
        }
    }
}
