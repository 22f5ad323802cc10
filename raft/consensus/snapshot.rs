//! Snapshots of the image: how one becomes a file, and which file is the current one. Never
//! touches the log.
//!
//! A new file is durable before the store's index names it, and the index is durable before older
//! files go: whatever a crash leaves, the index names a whole file.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use openraft::RaftSnapshotBuilder;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::log_storage::{decode_value, encode_value};
use super::options::SNAPSHOT_BYTES_MAX;
use super::store::handle::StoreHandle;
use super::store::{Key, MetadataStore, Write};
use super::type_config::{LogId, Snapshot, SnapshotMeta, TypeConfig};
use crate::MetadataImage;
use crate::envelope::{self, Kind};

/// The layout of a snapshot file.
const VERSION: u16 = 1;

/// What is in a snapshot file.
#[derive(Serialize)]
struct FileRef<'a> {
    meta: &'a SnapshotMeta,
    image: &'a MetadataImage,
}

/// What is in a snapshot file.
#[derive(Deserialize)]
struct File {
    meta: SnapshotMeta,
    image: MetadataImage,
}

/// Which file is the current one.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Index {
    meta: SnapshotMeta,
    file: String,
    bytes: u64,
    crc32c: u32,
}

/// Builds one snapshot of the image it was made with.
pub(crate) struct SnapshotBuilder {
    store: StoreHandle,
    image: Arc<MetadataImage>,
    meta: SnapshotMeta,
}

impl SnapshotBuilder {
    pub(crate) fn new(
        store: StoreHandle,
        image: Arc<MetadataImage>,
        meta: SnapshotMeta,
    ) -> SnapshotBuilder {
        SnapshotBuilder { store, image, meta }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let (image, meta) = (Arc::clone(&self.image), self.meta.clone());
        let encode = move || {
            let file = FileRef { meta: &meta, image: &image };
            envelope::encode(Kind::Snapshot, VERSION, &file, SNAPSHOT_BYTES_MAX)
        };
        let bytes = off_thread(&self.store, encode).await?.map_err(io::Error::other)?;
        let bytes = Bytes::from(bytes);
        save(&self.store, &self.meta, bytes.clone()).await?;
        tracing::info!(meta = %self.meta, bytes = bytes.len(), "built a metadata snapshot");
        Ok(Snapshot { meta: self.meta.clone(), snapshot: bytes })
    }
}

/// The image in a snapshot file; its position must be `meta`'s.
pub(crate) async fn decode(
    store: &StoreHandle,
    meta: &SnapshotMeta,
    bytes: Bytes,
) -> io::Result<MetadataImage> {
    let decode =
        move || envelope::decode::<File>(Kind::Snapshot, VERSION, &bytes, SNAPSHOT_BYTES_MAX);
    let file = off_thread(store, decode).await?.map_err(io::Error::other)?;
    if file.meta == *meta {
        Ok(file.image)
    } else {
        Err(io::Error::other(format!("the snapshot file is for {}, expected {meta}", file.meta)))
    }
}

/// Makes the file durable, then current, then removes the older ones.
pub(crate) async fn save(
    store: &StoreHandle,
    meta: &SnapshotMeta,
    bytes: Bytes,
) -> io::Result<()> {
    let index = Index {
        meta: meta.clone(),
        file: file_name(meta.last_log_id.as_ref()),
        bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        crc32c: checksum(&bytes),
    };
    let save = move |store: &mut dyn MetadataStore| {
        if decode_value::<Index>(store, Key::Snapshot, Kind::SnapshotIndex)?.as_ref()
            == Some(&index)
        {
            return Ok(());
        }
        store.write_snapshot(&index.file, &bytes)?;
        let value = encode_value(Kind::SnapshotIndex, &index)?;
        store.write(vec![Write::Put(Key::Snapshot, value)])?;
        store.flush()?;
        store.keep_only_snapshot(&index.file)
    };
    store.call(save).await.map_err(io::Error::other)
}

/// The current snapshot, checked against the index.
pub(crate) async fn current(store: &StoreHandle) -> io::Result<Option<Snapshot>> {
    let read = |store: &mut dyn MetadataStore| {
        let index = decode_value::<Index>(store, Key::Snapshot, Kind::SnapshotIndex)?;
        let Some(index) = index else { return Ok(None) };
        let bytes = store.read_snapshot(&index.file)?;
        Ok::<_, Error>(Some((index, bytes)))
    };
    let Some((index, bytes)) = store.call(read).await.map_err(io::Error::other)? else {
        return Ok(None);
    };
    let (actual_bytes, actual_crc) = (bytes.len(), checksum(&bytes));
    if u64::try_from(actual_bytes) != Ok(index.bytes) || actual_crc != index.crc32c {
        return Err(io::Error::other(format!(
            "the snapshot {} is damaged: {actual_bytes} bytes with checksum {actual_crc:#010x}, \
             expected {} bytes with checksum {:#010x}; move the metadata directory away and start \
             again, the node then joins as a new member",
            index.file, index.bytes, index.crc32c
        )));
    }
    Ok(Some(Snapshot { meta: index.meta, snapshot: bytes }))
}

/// Sorts by index. Two snapshots at one log id hold the same image.
fn file_name(last: Option<&LogId>) -> String {
    match last {
        Some(log_id) => format!("{:020}-{:010}.snapshot", log_id.index, log_id.leader_id.term),
        None => String::from("empty.snapshot"),
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
        .expect("a CRC-32 has 32 bits")
}

/// A large image takes milliseconds to encode: not on a thread that must answer heartbeats, unless
/// everything runs in place.
async fn off_thread<T: Send + 'static>(
    store: &StoreHandle,
    act: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if store.is_in_place() {
        Ok(act())
    } else {
        tokio::task::spawn_blocking(act).await.map_err(io::Error::other)
    }
}
