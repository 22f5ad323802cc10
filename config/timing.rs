//! The two sets of defaults for clocks: Kafka's, and the ones for clusters on one machine.
//!
//! Owns the numbers. It never reads a clock.

use std::time::Duration;

/// Which defaults apply where the settings say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Kafka's own.
    #[default]
    Server,
    /// A development cluster on one machine: fast detection, no waiting for group members.
    Dev,
}

impl Profile {
    /// Settings whose default this profile changes.
    pub fn defaults(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Profile::Server => &[],
            Profile::Dev => &[
                ("controller.quorum.election.timeout.ms", "150"),
                ("broker.heartbeat.interval.ms", "100"),
                ("broker.session.timeout.ms", "1000"),
                ("replica.lag.time.max.ms", "1000"),
                ("replica.fetch.backoff.ms", "500"),
                ("replica.socket.timeout.ms", "5000"),
                ("socket.connection.setup.timeout.ms", "3000"),
                ("group.initial.rebalance.delay.ms", "0"),
            ],
        }
    }

    /// The default of a setting under this profile, if it differs from the table's.
    pub fn default_of(self, name: &str) -> Option<&'static str> {
        self.defaults().iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// Clocks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The Raft leader's heartbeat.
    pub raft_heartbeat: Duration,
    /// A Raft follower that heard nothing this long may ask for votes.
    pub raft_election_min: Duration,
    /// And does so at the latest after this.
    pub raft_election_max: Duration,
    /// A broker's heartbeat to the controller.
    pub broker_heartbeat: Duration,
    /// A broker silent this long is fenced.
    pub broker_session: Duration,
    /// A follower behind this long leaves the ISR.
    pub replica_lag_time_max: Duration,
    /// How long an empty group waits for more members before its first rebalance.
    pub group_initial_rebalance_delay: Duration,
}

impl Timing {
    /// Kafka's defaults.
    pub fn server() -> Timing {
        Timing {
            broker_heartbeat: Duration::from_secs(2),
            broker_session: Duration::from_secs(9),
            replica_lag_time_max: Duration::from_secs(30),
            group_initial_rebalance_delay: Duration::from_secs(3),
            ..Timing::dev().with_election_timeout(Duration::from_secs(1))
        }
    }

    /// For development clusters and the demo.
    pub fn dev() -> Timing {
        Timing {
            raft_heartbeat: Duration::from_millis(50),
            raft_election_min: Duration::from_millis(150),
            raft_election_max: Duration::from_millis(300),
            broker_heartbeat: Duration::from_millis(100),
            broker_session: Duration::from_secs(1),
            replica_lag_time_max: Duration::from_secs(1),
            group_initial_rebalance_delay: Duration::ZERO,
        }
    }

    /// Derives Raft's clocks from `controller.quorum.election.timeout.ms`: an election starts
    /// between once and twice that time, and three heartbeats fit into it.
    pub fn with_election_timeout(self, timeout: Duration) -> Timing {
        Timing {
            raft_heartbeat: timeout / 3,
            raft_election_min: timeout,
            raft_election_max: timeout * 2,
            ..self
        }
    }
}
