//! Applies committed batches to the image. The only caller of `replay`; decides nothing. The state
//! is in memory: after a restart openraft installs the last snapshot and applies the log behind
//! it.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};

use super::published::Publisher;
use super::snapshot::{self, SnapshotBuilder};
use super::store::handle::StoreHandle;
use super::type_config::{
    LogId, RecordBatch, Snapshot, SnapshotMeta, StoredMembership, TypeConfig,
};
use crate::{MetadataDelta, MetadataImage};

/// The replicated state of one member.
pub(crate) struct StateMachine {
    publisher: Arc<Publisher>,
    store: StoreHandle,
    last_applied: Option<LogId>,
    membership: StoredMembership,
}

impl StateMachine {
    pub(crate) fn new(publisher: Arc<Publisher>, store: StoreHandle) -> StateMachine {
        StateMachine {
            publisher,
            store,
            last_applied: None,
            membership: StoredMembership::default(),
        }
    }

    /// # Errors
    /// A record does not fit the image. It fails on every member alike, so the node stops.
    fn replay(&self, batch: &RecordBatch, index: u64) -> io::Result<()> {
        let mut image = MetadataImage::clone(&self.publisher.image());
        let delta = image.replay_batch(&batch.records).map_err(|error| {
            io::Error::other(format!("entry {index} does not fit the image: {error}"))
        })?;
        self.publisher.publish(Arc::new(image), delta, index);
        Ok(())
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            assert!(self.last_applied < Some(entry.log_id), "entries are applied in order");
            match &entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(batch) => self.replay(batch, entry.log_id.index)?,
                EntryPayload::Membership(membership) => {
                    self.membership =
                        StoredMembership::new(Some(entry.log_id), membership.clone());
                }
            }
            self.last_applied = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder::new(
            self.store.clone(),
            self.publisher.image(),
            SnapshotMeta {
                last_log_id: self.last_applied,
                last_membership: self.membership.clone(),
            },
        )
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        bytes: Bytes,
    ) -> Result<(), io::Error> {
        let image = snapshot::decode(&self.store, meta, bytes.clone()).await?;
        snapshot::save(&self.store, meta, bytes).await?;
        let delta = MetadataDelta::between(&self.publisher.image(), &image);
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        let index = meta.last_log_id.map_or(0, |log_id| log_id.index);
        self.publisher.publish(Arc::new(image), delta, index);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        snapshot::current(&self.store).await
    }
}
