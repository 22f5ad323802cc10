//! The first start of a cluster: the lowest listed voter asks all others whether they are empty,
//! and when all are, initialises the quorum with them. It does nothing once a cluster exists, but
//! tell a broker that does not vote which cluster that is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::api::{Request, Response};
use protocol::ids::NodeId;
use protocol::messages::{QuorumHelloRequest, QuorumHelloResponse};
use raft::consensus::{self, Consensus, RaftId};
use tokio::time::Instant;

use super::{raft_id, voters};
use crate::directory::Directory;
use crate::peers::Plane;

/// Pause between two rounds of asking.
const RETRY: Duration = Duration::from_millis(20);

/// How long one voter may take to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);

/// How often the missing are named.
const COMPLAIN_EVERY: Duration = Duration::from_secs(5);

/// Runs until the cluster is initialised, by this node or another.
pub async fn run(directory: Arc<Directory>, consensus: Consensus) {
    let voters = voters(&directory);
    let me = directory.node_id();
    let asks = voters.first() == Some(&me);
    let mut complained = Instant::now();
    loop {
        match consensus.is_initialised().await {
            Ok(false) => {}
            Ok(true) | Err(_) => return,
        }
        let missing = if asks {
            match gather(&directory, &voters).await {
                Ok(members) => return initialise(&consensus, members).await,
                Err(missing) => missing,
            }
        } else {
            voters.iter().take(1).copied().filter(|voter| *voter != me).collect()
        };
        if complained.elapsed() >= COMPLAIN_EVERY {
            complained = Instant::now();
            complain(me, &missing, asks);
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The id of the cluster, as soon as there is one. A broker that does not vote follows the log
/// only once it is registered, and names the cluster's id for that: it asks the voters.
pub async fn cluster_id(directory: &Arc<Directory>, deadline: Duration) -> Option<String> {
    let voters = voters(directory);
    let known = |image: &raft::MetadataImage| image.cluster.id().is_some();
    if voters.contains(&directory.node_id()) {
        directory.wait_for_image(deadline, known).await;
        return directory.image().cluster.id().map(str::to_owned);
    }
    let end = Instant::now() + deadline;
    while Instant::now() < end && !directory.stopped.is_cancelled() {
        if let Some(id) = directory.image().cluster.id() {
            return Some(id.to_owned());
        }
        for voter in &voters {
            let answer = hello(directory, *voter).await;
            if let Some(id) = answer.and_then(|answer| answer.cluster_id) {
                return Some(id);
            }
        }
        tokio::time::sleep(RETRY).await;
    }
    None
}

fn complain(me: NodeId, missing: &[NodeId], asks: bool) {
    let missing: Vec<String> = missing.iter().map(NodeId::to_string).collect();
    let missing = missing.join(", ");
    if asks {
        tracing::warn!(node = %me, missing, "waiting for voters before the first start");
    } else {
        tracing::warn!(node = %me, missing, "waiting for the first voter to start the cluster");
    }
}

/// Asks every voter. The members when all answered that they are empty, else who did not.
async fn gather(
    directory: &Arc<Directory>,
    voters: &[NodeId],
) -> Result<BTreeMap<RaftId, NodeId>, Vec<NodeId>> {
    let mut members = BTreeMap::new();
    let mut missing = Vec::new();
    for voter in voters {
        match hello(directory, *voter).await {
            Some(answer) if answer.empty && answer.node_id == voter.0 => {
                members.insert(raft_id(answer.directory_id), *voter);
            }
            Some(answer) if answer.node_id != voter.0 => {
                tracing::error!(
                    voter = %voter, answered = answer.node_id,
                    "another node answers at the voter's address: check the listeners"
                );
                missing.push(*voter);
            }
            Some(answer) => {
                tracing::error!(
                    voter = %voter, cluster = ?answer.cluster_id,
                    "the voter's folder is not empty, and a new cluster would delete what is in \
                     it: bring back the metadata it belongs to, or empty it"
                );
                missing.push(*voter);
            }
            None => missing.push(*voter),
        }
    }
    if missing.is_empty() { Ok(members) } else { Err(missing) }
}

async fn hello(directory: &Arc<Directory>, voter: NodeId) -> Option<QuorumHelloResponse> {
    let request = QuorumHelloRequest {
        cluster: directory.identity.cluster.clone(),
        node_id: directory.node_id().0,
        directory_id: directory.identity.directory_id.0,
        has_cluster_id: false,
    };
    let link = directory.peers.link(voter, Plane::Control);
    match link.call(Request::from(request), ANSWER_DEADLINE).await {
        Ok(Response::QuorumHello(response)) => Some(response),
        Ok(other) => {
            tracing::debug!(%voter, key = ?other.api_key(), "an answer to another question");
            None
        }
        Err(error) => {
            tracing::debug!(%voter, %error, "the voter does not answer yet");
            None
        }
    }
}

/// The cluster's id is made by whoever leads first.
async fn initialise(consensus: &Consensus, members: BTreeMap<RaftId, NodeId>) {
    match consensus.initialise(members).await {
        Ok(()) => {}
        // The node ended meanwhile, and says itself why.
        Err(error @ consensus::Error::Stopped { .. }) => {
            tracing::debug!(%error, "the quorum was not initialised");
        }
        Err(error) => tracing::warn!(%error, "the quorum was not initialised"),
    }
}
