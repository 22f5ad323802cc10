//! The broker's life in its cluster: registration, heartbeats, and the orderly goodbye. It serves
//! nobody; listeners open when the image says that the broker is unfenced.

use std::sync::Arc;
use std::time::Duration;

use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::BrokerEpoch;
use protocol::messages::broker_registration_request::{Feature, Listener};
use protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use uuid::Uuid;

use crate::controller::bootstrap;
use crate::directory::Directory;
use crate::error::Error;
use crate::replicas::ReplicasHandle;

/// How long one registration may look for a controller before it starts over.
const REGISTRATION_DEADLINE: Duration = Duration::from_secs(10);

/// Pause after a failed registration.
const REGISTRATION_RETRY: Duration = Duration::from_millis(50);

/// How long leaderships may take to move away at a stop.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);

/// What the broker's life can be told.
#[derive(Debug)]
pub enum LifecycleMsg {
    /// Time for the next step: to register, or to send a heartbeat.
    StepTimeout,
    /// The controller answered a registration.
    Registered(Result<BrokerEpoch, Error>),
    /// The controller answered a heartbeat.
    HeartbeatAnswered(Result<BrokerHeartbeatResponse, Error>),
}

/// What it is started with.
#[derive(Debug, Clone)]
pub struct LifecycleArgs {
    /// The node.
    pub directory: Arc<Directory>,
}

/// The actor; everything mutable is in [`LifecycleState`].
#[derive(Debug)]
pub struct Lifecycle;

/// Where the broker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Not registered in this life yet, or not any more.
    Unregistered,
    /// Registered; the controller says whether it is fenced.
    Registered { epoch: BrokerEpoch, fenced: bool },
}

/// The state of one incarnation.
#[derive(Debug)]
pub struct LifecycleState {
    directory: Arc<Directory>,
    myself: ActorRef<LifecycleMsg>,
    incarnation_id: Uuid,
    standing: Standing,
}

impl Actor for Lifecycle {
    type Msg = LifecycleMsg;
    type State = LifecycleState;
    type Arguments = LifecycleArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let LifecycleArgs { directory } = args;
        // A restarted actor belongs to the same life of the node: it goes on with its epoch.
        let standing = match directory.broker_epoch() {
            BrokerEpoch(-1) => Standing::Unregistered,
            epoch => Standing::Registered { epoch, fenced: true },
        };
        let incarnation_id = directory.entropy.next_uuid();
        let state = LifecycleState { directory, myself, incarnation_id, standing };
        state.step();
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            LifecycleMsg::StepTimeout => state.step(),
            LifecycleMsg::Registered(result) => state.on_registered(result),
            LifecycleMsg::HeartbeatAnswered(result) => state.on_heartbeat_answered(result),
        }
        Ok(())
    }
}

impl LifecycleState {
    fn step(&self) {
        if self.directory.stopped.is_cancelled() {
            return;
        }
        let directory = Arc::clone(&self.directory);
        let myself = self.myself.clone();
        let incarnation_id = self.incarnation_id;
        let standing = self.standing;
        self.directory.runtimes.spawn_control(async move {
            let message = match standing {
                Standing::Unregistered => {
                    LifecycleMsg::Registered(register(&directory, incarnation_id).await)
                }
                Standing::Registered { epoch, .. } => {
                    let answer = heartbeat(&directory, epoch, false).await;
                    LifecycleMsg::HeartbeatAnswered(answer)
                }
            };
            if myself.cast(message).is_err() {
                tracing::trace!("the lifecycle's actor is gone");
            }
        });
    }

    fn step_after(&self, pause: Duration) {
        self.myself.send_after(pause, || LifecycleMsg::StepTimeout);
    }

    fn on_registered(&mut self, result: Result<BrokerEpoch, Error>) {
        match result {
            Ok(epoch) => {
                tracing::info!(node = %self.directory.node_id(), %epoch, "unregistered → fenced");
                self.directory.set_broker_epoch(epoch);
                if let Ok(log_dir) = self.directory.log_dir() {
                    log_dir.set_broker_epoch(epoch);
                }
                self.directory.with_replicas(ReplicasHandle::registered);
                self.standing = Standing::Registered { epoch, fenced: true };
                self.step();
            }
            Err(error) => {
                tracing::warn!(node = %self.directory.node_id(), %error, "not registered yet");
                self.step_after(REGISTRATION_RETRY);
            }
        }
    }

    fn on_heartbeat_answered(&mut self, result: Result<BrokerHeartbeatResponse, Error>) {
        let Standing::Registered { epoch, fenced: was_fenced } = self.standing else {
            return;
        };
        let interval = self.directory.config.timing.broker_heartbeat;
        match result.map(|response| (ErrorCode::from_code(response.error_code), response)) {
            Ok((ErrorCode::None, response)) => {
                let fenced = response.is_fenced;
                if fenced != was_fenced {
                    let now = if fenced { "unfenced → fenced" } else { "fenced → unfenced" };
                    tracing::info!(node = %self.directory.node_id(), %epoch, "{now}");
                }
                self.standing = Standing::Registered { epoch, fenced };
                // A fenced broker serves nobody: it asks again soon.
                self.step_after(if fenced { interval.min(FENCED_RETRY) } else { interval });
            }
            Ok((ErrorCode::StaleBrokerEpoch | ErrorCode::BrokerIdNotRegistered, _)) => {
                tracing::warn!(node = %self.directory.node_id(), "fenced → unregistered");
                self.incarnation_id = self.directory.entropy.next_uuid();
                self.standing = Standing::Unregistered;
                self.step();
            }
            Ok((code, _)) => {
                tracing::warn!(?code, "the heartbeat was refused");
                self.step_after(interval);
            }
            Err(error) => {
                tracing::debug!(%error, "the heartbeat was lost");
                self.step_after(interval.min(FENCED_RETRY));
            }
        }
    }
}

/// Pause between heartbeats while fenced.
const FENCED_RETRY: Duration = Duration::from_millis(10);

async fn register(directory: &Arc<Directory>, incarnation_id: Uuid) -> Result<BrokerEpoch, Error> {
    let cluster_id = bootstrap::cluster_id(directory, REGISTRATION_DEADLINE).await;
    let cluster_id = cluster_id.ok_or(Error::NoAnswer { what: "the quorum" })?;
    let previous = directory.log_dir()?.previous_broker_epoch().map_or(-1, |epoch| epoch.0);
    let advertised = directory.advertised();
    let listeners = advertised.iter().map(|listener| Listener {
        name: listener.name.clone(),
        host: listener.host.clone(),
        port: listener.port,
        security_protocol: listener.security_protocol,
    });
    let request = BrokerRegistrationRequest {
        broker_id: directory.node_id().0,
        cluster_id,
        incarnation_id,
        listeners: listeners.collect(),
        features: vec![Feature {
            name: raft::MIRROR_VERSION.to_string(),
            min_supported_version: 0,
            max_supported_version: 1,
        }],
        rack: directory.config.rack.clone(),
        log_dirs: vec![directory.identity.directory_id.0],
        previous_broker_epoch: previous,
        ..BrokerRegistrationRequest::default()
    };
    match directory.call_controller(Request::from(request), REGISTRATION_DEADLINE).await? {
        Response::BrokerRegistration(response) => {
            match ErrorCode::from_code(response.error_code) {
                ErrorCode::None => Ok(BrokerEpoch(response.broker_epoch)),
                code => Err(Error::refused(code)),
            }
        }
        other => Err(crate::peers::unexpected(&other)),
    }
}

async fn heartbeat(
    directory: &Arc<Directory>,
    epoch: BrokerEpoch,
    want_shut_down: bool,
) -> Result<BrokerHeartbeatResponse, Error> {
    // The registration in this node's own image says that it has caught up with it.
    let me = directory.node_id();
    let registered =
        directory.image().cluster.broker(me).is_some_and(|broker| broker.epoch == epoch);
    let request = BrokerHeartbeatRequest {
        broker_id: me.0,
        broker_epoch: epoch.0,
        current_metadata_offset: if registered { epoch.0 } else { epoch.0 - 1 },
        want_fence: false,
        want_shut_down,
        ..BrokerHeartbeatRequest::default()
    };
    let deadline = directory.config.timing.broker_session;
    match directory.call_controller(Request::from(request), deadline).await? {
        Response::BrokerHeartbeat(response) => Ok(response),
        other => Err(crate::peers::unexpected(&other)),
    }
}

/// Asks the controller to move this broker's leaderships away, and waits until it may go.
pub async fn controlled_shutdown(directory: &Arc<Directory>) {
    let epoch = directory.broker_epoch();
    if epoch == BrokerEpoch(-1) || !directory.config.controlled_shutdown_enable {
        return;
    }
    let moved = async {
        loop {
            match heartbeat(directory, epoch, true).await {
                Ok(response) if response.should_shut_down => return,
                Ok(response) if response.error_code != 0 => return,
                Ok(_) | Err(_) => tokio::time::sleep(FENCED_RETRY).await,
            }
        }
    };
    if tokio::time::timeout(SHUTDOWN_DEADLINE, moved).await.is_err() {
        tracing::warn!(node = %directory.node_id(), "leaderships did not all move away");
    }
}
