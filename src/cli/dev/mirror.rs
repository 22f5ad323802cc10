//! `dev --mirror-from`: a mirror of a running cluster, created and started over the wire on our
//! own bootstrap, as a user would. Owns the mirror's name; knows nothing of how mirroring works.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::banner::program;
use crate::cli::mirrors::admin::{MirrorAdmin, TopicRequest};
use crate::cli::mirrors::plan::TopicArguments;

/// What the mirror of `--mirror-from` is called.
const MIRROR: &str = "source";

/// Creates the mirror unless an earlier run did, starts the topics, and says how to watch it.
///
/// # Errors
/// One sentence: the source does not answer, a topic is refused.
pub async fn set_up(bootstrap: &str, source: &str, topics: &str) -> Result<String> {
    let servers: Vec<String> = bootstrap.split(',').map(str::to_owned).collect();
    let admin = MirrorAdmin::new(&servers, "heliograph-dev");
    create(&admin, source).await?;
    let topics = TopicArguments::parse(topics);
    let asked = TopicRequest { mirror: MIRROR, topics: &topics, exclude: &[] };
    let started = admin
        .start(&asked)
        .await
        .with_context(|| format!("--mirror-from {source}: the topics cannot be started"))?;
    let mut names: Vec<&str> = Vec::new();
    for outcome in &started {
        match &outcome.failure {
            None => names.push(&outcome.topic),
            Some(failure) => bail!("--mirror-from {source}: topic {}: {failure}", outcome.topic),
        }
    }
    names.sort_unstable();
    Ok(format!(
        "\nMirroring {} topic(s) of {source}: [{}]. Watch it:\n  {} kafka-mirrors \
         --bootstrap-server {bootstrap} --describe --mirror {MIRROR}\n",
        names.len(),
        names.join(", "),
        program()
    ))
}

async fn create(admin: &MirrorAdmin, source: &str) -> Result<()> {
    let existing = admin.list().await.context("the mirrors cannot be listed")?;
    match existing.iter().find(|row| row.mirror == MIRROR) {
        Some(row) if row.source_bootstrap == source => Ok(()),
        Some(row) => bail!(
            "mirror '{MIRROR}' of this folder has the source {}, not {source}: choose another \
             --dir",
            row.source_bootstrap
        ),
        None => {
            let settings = BTreeMap::from([("bootstrap.servers".to_owned(), source.to_owned())]);
            admin
                .create(MIRROR, &settings)
                .await
                .with_context(|| format!("--mirror-from {source}: the mirror cannot be created"))
        }
    }
}
