//! openraft's own suite for logs and state machines, on both stores.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use super::*;

struct Memory;

impl StoreBuilder<TypeConfig, LogStorage, StateMachine, ()> for Memory {
    async fn build(&self) -> Result<((), LogStorage, StateMachine), StorageError<TypeConfig>> {
        let (log, state_machine) = open(&Store::Memory(MemoryStore::new())).await;
        Ok(((), log, state_machine))
    }
}

struct Sled;

impl StoreBuilder<TypeConfig, LogStorage, StateMachine, TempDir> for Sled {
    async fn build(
        &self,
    ) -> Result<(TempDir, LogStorage, StateMachine), StorageError<TypeConfig>> {
        let dir = TempDir::new().unwrap();
        let (log, state_machine) =
            open(&Store::Sled { dir: dir.path().to_owned(), sync: false }).await;
        Ok((dir, log, state_machine))
    }
}

async fn open(store: &Store) -> (LogStorage, StateMachine) {
    let (handle, _guard, _abort) = StoreHandle::open(store).await.unwrap();
    let log = LogStorage::open(handle.clone(), RaftId(0), PathBuf::new()).await.unwrap();
    (log, StateMachine::new(Arc::new(Publisher::new()), handle))
}

#[tokio::test]
async fn memory_store_passes_openrafts_suite() {
    Runtime::scope(1, Box::pin(Suite::test_all(Memory))).await.unwrap();
}

#[tokio::test]
async fn sled_store_passes_openrafts_suite() {
    Runtime::scope(1, Box::pin(Suite::test_all(Sled))).await.unwrap();
}
