//! What a quorum promises, on both stores: elections, commits, restarts, snapshots, deposed
//! leaders.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::test_cluster::*;
use super::*;

async fn propose(leader: &Consensus, name: &str, value: i16) -> LogIndex {
    leader.propose(vec![record(name, value)]).await.unwrap()
}

async fn elects_and_applies_everywhere(on: On) {
    let cluster = TestCluster::new(on, 3);
    let begun = Instant::now();
    let nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    let led = begun.elapsed();
    let index = propose(&leader, "a", 1).await;
    let committed = begun.elapsed();
    for consensus in nodes.values() {
        until(consensus, "a = 1", |image| level(image, "a") == Some(1)).await;
    }
    println!(
        "{on:?}: empty to leader {led:?}, to first commit {committed:?}, to all {:?}",
        begun.elapsed()
    );
    let mut times = Vec::new();
    for value in 1..=200 {
        let before = Instant::now();
        propose(&leader, "b", value).await;
        times.push(before.elapsed());
    }
    times.sort();
    println!("{on:?}: one proposal at a time: p50 {:?}, p99 {:?}", times[100], times[198]);
    let metrics = leader.metrics();
    assert_eq!(metrics.leader, Some(leader.node_id()));
    assert!(metrics.applied > Some(index));
    assert_eq!(metrics.voters, cluster.members().into_keys().collect());
    assert!(leader.is_initialised().await.unwrap());
    let again = leader.initialise(cluster.members()).await;
    assert!(matches!(again, Err(Error::AlreadyInitialised)), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_quorum_elects_and_applies_everywhere() {
    elects_and_applies_everywhere(On::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_quorum_elects_and_applies_everywhere() {
    elects_and_applies_everywhere(On::Sled).await;
}

async fn new_leader_keeps_what_was_committed(on: On) {
    let cluster = TestCluster::new(on, 3);
    let mut nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    for value in 0..20 {
        propose(&leader, "kept", value).await;
    }
    let killed = Instant::now();
    cluster.unplug(leader.node_id());
    leader.crash();
    nodes.remove(&leader.node_id());
    let next = cluster.leader(&nodes).await;
    println!("{on:?}: leader killed to next leader ready {:?}", killed.elapsed());
    assert_ne!(next.node_id(), leader.node_id());
    assert_eq!(level(&next.image(), "kept"), Some(19));
    propose(&next, "after", 1).await;
    assert!(next.metrics().term > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_new_leader_keeps_what_was_committed() {
    new_leader_keeps_what_was_committed(On::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_new_leader_keeps_what_was_committed() {
    new_leader_keeps_what_was_committed(On::Sled).await;
}

async fn restarted_quorum_remembers(on: On) {
    let cluster = TestCluster::new(on, 3);
    let nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    for value in 0..50 {
        propose(&leader, "kept", value).await;
    }
    let open = cluster.try_start(leader.node_id()).await;
    assert!(matches!(open, Err(Error::InUse { .. })), "{open:?}");
    drop(leader);
    for consensus in nodes.into_values() {
        stop(&cluster, consensus).await;
    }
    let mut nodes = std::collections::BTreeMap::new();
    for id in 1..=3 {
        nodes.insert(node(id), cluster.start(node(id)).await);
    }
    let leader = cluster.leader(&nodes).await;
    assert_eq!(level(&leader.image(), "kept"), Some(49));
    propose(&leader, "kept", 50).await;
    for consensus in nodes.values() {
        until(consensus, "kept = 50", |image| level(image, "kept") == Some(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_restarted_quorum_remembers() {
    restarted_quorum_remembers(On::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_restarted_quorum_remembers() {
    restarted_quorum_remembers(On::Sled).await;
}

#[tokio::test]
async fn quorum_that_lost_all_unflushed_bytes_lost_nothing_acknowledged() {
    let cluster = TestCluster::new(On::Memory, 3);
    let nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    for value in 0..30 {
        propose(&leader, "kept", value).await;
    }
    drop(leader);
    for (id, consensus) in nodes {
        let Store::Memory(memory) = &cluster.stores[&id] else { panic!("a memory store") };
        let guard = consensus.crash();
        memory.crash();
        cluster.links.up.lock().remove(&id);
        drop(consensus);
        closed(guard).await;
        assert!(memory.flushes() > 30);
    }
    let mut nodes = std::collections::BTreeMap::new();
    for id in 1..=3 {
        nodes.insert(node(id), cluster.start(node(id)).await);
    }
    let leader = cluster.leader(&nodes).await;
    assert_eq!(level(&leader.image(), "kept"), Some(29));
}

async fn lagging_follower_catches_up_by_snapshot(on: On) {
    let mut cluster = TestCluster::new(on, 3);
    (cluster.snapshot_after, cluster.keep_entries) = (40, 5);
    let nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    propose(&leader, "first", 1).await;
    let late = nodes.values().find(|n| n.node_id() != leader.node_id()).unwrap();
    until(late, "first = 1", |image| level(image, "first") == Some(1)).await;
    let mut published = late.published();
    assert!(!published.recv().await.unwrap().delta.is_empty());
    cluster.unplug(late.node_id());
    for value in 0..300 {
        propose(&leader, "late", value).await;
    }
    let purged = async {
        while leader.metrics().purged < Some(LogIndex(100)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), purged).await.expect("the log is purged");
    cluster.plug(late);
    until(late, "late = 299", |image| level(image, "late") == Some(299)).await;
    let snapshot = late.metrics().snapshot;
    assert!(snapshot > Some(LogIndex(40)), "{snapshot:?}");
    let mut last = published.recv().await.unwrap();
    assert!(last.delta.cluster);
    while level(&last.image, "late") != Some(299) {
        last = published.recv().await.unwrap();
    }
    // The member that got the snapshot starts from it.
    let (id, expected) = (late.node_id(), leader.image());
    let late = nodes[&id].clone();
    let guard = late.shutdown().await;
    drop((late, nodes));
    closed(guard).await;
    let again = cluster.start(id).await;
    until(&again, "what the leader has", |image| *image == *expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_lagging_follower_catches_up_by_snapshot() {
    lagging_follower_catches_up_by_snapshot(On::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_lagging_follower_catches_up_by_snapshot() {
    lagging_follower_catches_up_by_snapshot(On::Sled).await;
}

async fn deposed_leaders_proposal_fails(on: On) {
    let cluster = TestCluster::new(on, 3);
    let mut nodes = cluster.form().await;
    let old = cluster.leader(&nodes).await;
    let term = old.leadership().borrow().term;
    propose(&old, "before", 1).await;
    cluster.unplug(old.node_id());
    let lost = old.propose(vec![record("lost", 1)]);
    nodes.remove(&old.node_id());
    let new = cluster.leader(&nodes).await;
    propose(&new, "after", 1).await;
    cluster.plug(&old);
    let outcome = lost.await;
    assert!(
        matches!(
            outcome,
            Err(ProposeError::NotLeader { .. } | ProposeError::OutcomeUnknown { .. })
        ),
        "{outcome:?}"
    );
    until(&old, "after = 1", |image| level(image, "after") == Some(1)).await;
    assert_eq!(level(&old.image(), "lost"), None);
    let refused = old.propose(vec![record("lost", 2)]).await;
    assert_eq!(refused, Err(ProposeError::NotLeader { leader: Some(new.node_id()) }));
    let stale = new.propose_in_term(term, vec![record("stale", 1)]).await;
    assert!(matches!(stale, Err(ProposeError::NotLeader { .. })), "{stale:?}");
    let term = new.leadership().borrow().term;
    new.propose_in_term(term, vec![record("fresh", 1)]).await.unwrap();
    assert_eq!(level(&new.image(), "stale"), None);
}

#[tokio::test]
async fn leader_without_quorum_gives_up_and_is_ready_again_with_all_applied() {
    let cluster = TestCluster::new(On::Memory, 3);
    let nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    let followers: Vec<_> =
        nodes.values().filter(|n| n.node_id() != leader.node_id()).cloned().collect();
    for follower in &followers {
        cluster.unplug(follower.node_id());
    }
    let pending = leader.propose(vec![record("pending", 1)]);
    let mut leadership = leader.leadership();
    let given_up = leadership.wait_for(|now| !now.am_leader);
    let given_up = tokio::time::timeout(Duration::from_secs(5), given_up).await.unwrap();
    assert!(!given_up.unwrap().ready);
    for follower in &followers {
        cluster.plug(follower);
    }
    let outcome = pending.await;
    let next = cluster.leader(&nodes).await;
    assert_eq!(level(&next.image(), "pending").is_some(), outcome.is_ok(), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_deposed_leaders_proposal_fails() {
    deposed_leaders_proposal_fails(On::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_deposed_leaders_proposal_fails() {
    deposed_leaders_proposal_fails(On::Sled).await;
}

#[tokio::test]
async fn emptied_directory_joins_as_a_new_member() {
    let mut cluster = TestCluster::new(On::Memory, 3);
    let mut nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    propose(&leader, "kept", 1).await;
    let victim = nodes.keys().copied().find(|id| *id != leader.node_id()).unwrap();
    let old_id = cluster.raft_id(victim);
    stop(&cluster, nodes.remove(&victim).unwrap()).await;
    cluster.empty(victim, Store::Memory(MemoryStore::new()));
    let new_id = cluster.raft_id(victim);
    let joined = cluster.start(victim).await;
    assert!(!joined.is_initialised().await.unwrap());
    leader.add_learner(new_id, victim).await.unwrap();
    until(&joined, "kept = 1", |image| level(image, "kept") == Some(1)).await;
    let mut voters: BTreeSet<RaftId> = leader.metrics().voters;
    voters.remove(&old_id);
    voters.insert(new_id);
    leader.change_membership(voters.clone(), false).await.unwrap();
    assert_eq!(leader.metrics().voters, voters);
    assert!(!leader.metrics().members.contains_key(&old_id));
    propose(&leader, "kept", 2).await;
    until(&joined, "kept = 2", |image| level(image, "kept") == Some(2)).await;
    let follower = nodes.values().find(|n| n.node_id() != leader.node_id()).unwrap();
    let refused = follower.add_learner(RaftId(5), node(9)).await;
    assert!(matches!(refused, Err(Error::NotLeader { leader: Some(_) })), "{refused:?}");
    leader.add_learner(RaftId(5), node(9)).await.unwrap();
    leader.remove_learners(BTreeSet::from([RaftId(5)])).await.unwrap();
    assert!(!leader.metrics().members.contains_key(&RaftId(5)));
}

#[tokio::test]
async fn store_of_another_member_is_refused() {
    let mut cluster = TestCluster::new(On::Sled, 1);
    let consensus = cluster.start(node(1)).await;
    stop(&cluster, consensus).await;
    let store = cluster.stores[&node(1)].clone();
    cluster.empty(node(1), store);
    let refused = cluster.try_start(node(1)).await;
    assert!(
        matches!(
            refused,
            Err(Error::ForeignStore { stored: RaftId(11), asked: RaftId(1011), .. })
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn failed_flush_stops_the_member_and_says_why() {
    let cluster = TestCluster::new(On::Memory, 3);
    let nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    let Store::Memory(memory) = &cluster.stores[&leader.node_id()] else {
        panic!("a memory store")
    };
    memory.fail_flush_after(0);
    let failed = leader.propose(vec![record("a", 1)]).await;
    assert!(failed.is_err(), "{failed:?}");
    let mut leadership = leader.leadership();
    let stopped = leadership.wait_for(|now| now.stopped.is_some());
    let stopped = tokio::time::timeout(Duration::from_secs(5), stopped).await.unwrap();
    let state = stopped.unwrap().clone();
    assert!(!state.am_leader && !state.ready);
    assert!(state.stopped.unwrap().contains("told to fail"));
}

#[tokio::test]
async fn single_member_leads_alone_and_proposals_keep_their_order() {
    let cluster = TestCluster::new(On::Memory, 1);
    let nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    let mut published = leader.published();
    let first = published.recv().await.unwrap();
    assert!(first.delta.is_empty());
    let proposals: Vec<_> =
        (1..=50).map(|value| leader.propose(vec![record("n", value)])).collect();
    // Awaited backwards: the order is that of the calls.
    for proposal in proposals.into_iter().rev() {
        proposal.await.unwrap();
    }
    for value in 1..=50 {
        let step = published.recv().await.unwrap();
        assert_eq!(level(&step.image, "n"), Some(value));
        assert!(step.delta.cluster);
        assert!(step.index > first.index);
    }
    let mut second = leader.published();
    assert_eq!(level(&second.recv().await.unwrap().image, "n"), Some(50));
    assert!(published.recv().await.is_none());
}

#[test]
fn damaged_sled_files_give_a_sentence() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = TestCluster::new(On::Sled, 1);
    let Store::Sled { dir, .. } = cluster.stores[&node(1)].clone() else { panic!("a sled store") };
    runtime.block_on(async {
        let nodes = cluster.form().await;
        let leader = cluster.leader(&nodes).await;
        for value in 0..200 {
            propose(&leader, "a", value).await;
        }
        drop(leader);
        for consensus in nodes.into_values() {
            stop(&cluster, consensus).await;
        }
    });
    let path = dir.join("raft").join("db");
    let whole = std::fs::read(&path).unwrap();
    for (from, to) in [(0, whole.len()), (0, 64), (16, 4_096), (2_000, 2_001)] {
        let mut damaged = whole.clone();
        damaged[from..to.min(whole.len())].iter_mut().for_each(|byte| *byte ^= 0x5a);
        std::fs::write(&path, &damaged).unwrap();
        let started = runtime.block_on(async {
            let started = cluster.try_start(node(1)).await;
            if let Ok(consensus) = &started {
                closed(consensus.shutdown().await).await;
            }
            started.map(|_| ())
        });
        println!("{from}..{to}: {started:?}");
        assert!(matches!(started, Ok(()) | Err(Error::Corrupt { .. })), "{started:?}");
        if from == 0 {
            let sentence = started.unwrap_err().to_string();
            assert!(sentence.contains("move the directory away"), "{sentence}");
        }
    }
}

#[tokio::test]
async fn large_entries_come_back_whole() {
    let cluster = TestCluster::new(On::Sled, 1);
    let nodes = cluster.form().await;
    let leader = cluster.leader(&nodes).await;
    let names: Vec<String> = (0..3_000).map(|n| format!("{n:0>500}")).collect();
    let batch = || names.iter().map(|name| record(name, 3)).collect::<Vec<_>>();
    leader.propose(batch()).await.unwrap();
    propose(&leader, "small", 1).await;
    leader.propose(batch()).await.unwrap();
    let Store::Sled { dir, .. } = &cluster.stores[&node(1)] else { panic!("a sled store") };
    let blobs = std::fs::read_dir(dir.join("raft").join("blobs")).unwrap().count();
    assert_eq!(blobs, 0, "sled never syncs blobs");
    let expected = leader.image();
    drop((leader, nodes.into_values().map(|node| node.crash()).collect::<Vec<_>>()));
    let again = loop {
        match cluster.try_start(node(1)).await {
            Ok(again) => break again,
            Err(Error::InUse { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let nodes = [(node(1), again.clone())].into();
    cluster.leader(&nodes).await;
    assert!(*again.image() == *expected);
    let large = half_mebibytes(40);
    let refused = again.propose(large).await;
    assert!(matches!(refused, Err(ProposeError::TooLarge { records: 40, .. })), "{refused:?}");
}

/// Records of half a MiB each.
fn half_mebibytes(records: usize) -> Vec<crate::MetadataRecord> {
    (0..records).map(|n| record(&n.to_string().repeat(500_000), 1)).collect()
}

#[test]
fn store_closes_with_its_runtime() {
    let cluster = TestCluster::new(On::Sled, 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (consensus, index) = runtime.block_on(async {
        let nodes = cluster.form().await;
        let leader = cluster.leader(&nodes).await;
        let index = propose(&leader, "kept", 1).await;
        (leader, index)
    });
    let guard = consensus.crash();
    assert!(!guard.is_closed());
    runtime.shutdown_background();
    let other = tokio::runtime::Runtime::new().unwrap();
    other.block_on(closed(guard));
    let again = other.block_on(async {
        let again = cluster.start(node(1)).await;
        cluster.leader(&[(node(1), again.clone())].into()).await
    });
    assert_eq!(level(&again.image(), "kept"), Some(1));
    assert!(again.metrics().applied > Some(index));
}

/// Runs a story of elections on paused time and returns what happened when.
fn story(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut cluster = TestCluster::new(On::Memory, 3);
        cluster.seed = seed;
        let begun = tokio::time::Instant::now();
        let mut trace = Vec::new();
        let mut nodes = cluster.form().await;
        for round in 1..=4 {
            let leader = cluster.leader(&nodes).await;
            propose(&leader, "round", round).await;
            trace.push(format!(
                "{:?}: {} in term {}, {:?}",
                begun.elapsed(),
                leader.node_id(),
                leader.metrics().term,
                leader.metrics().applied
            ));
            cluster.unplug(leader.node_id());
            nodes.remove(&leader.node_id());
            let next = cluster.leader(&nodes).await;
            trace.push(format!("{:?}: {}", begun.elapsed(), next.node_id()));
            cluster.plug(&leader);
            nodes.insert(leader.node_id(), leader.clone());
            until(&leader, "the round", |image| level(image, "round") == Some(round)).await;
            let mut leadership = leader.leadership();
            leadership.wait_for(|now| !now.am_leader).await.unwrap();
        }
        trace
    })
}

#[test]
fn same_seed_gives_the_same_story() {
    let (one, two, other) = (story(1), story(1), story(2));
    println!("{one:#?}");
    assert_eq!(one, two);
    assert_ne!(one, other);
}
