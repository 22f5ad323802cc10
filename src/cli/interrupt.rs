//! Ctrl-C and SIGTERM: the first asks for an orderly end, a second one ends the process at once.
//! Owns both signals of a command that runs until it is told to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::logging;

/// What a shell expects of a process that Ctrl-C ended.
const EXIT_AT_ONCE: i32 = 130;

/// Tells when the process was asked to end. Clones share it.
#[derive(Clone, Debug)]
pub struct Interrupt {
    asked: watch::Receiver<bool>,
}

impl Interrupt {
    /// Takes the signals over on the current runtime. `last_act` runs before an end at once.
    ///
    /// # Errors
    /// The system's, when a handler cannot be set.
    pub fn listen(last_act: impl FnOnce() + Send + 'static) -> io::Result<Interrupt> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        let (tell, asked) = watch::channel(false);
        tokio::spawn(async move {
            next(&mut interrupts, &mut terminations).await;
            tell.send_replace(true);
            next(&mut interrupts, &mut terminations).await;
            // The folder goes from under nodes that still run: what they say of it helps nobody.
            logging::silence();
            last_act();
            std::process::exit(EXIT_AT_ONCE);
        });
        Ok(Interrupt { asked })
    }

    /// Resolves once the process was asked to end.
    pub async fn asked(&self) {
        let mut asked = self.asked.clone();
        if asked.wait_for(|asked| *asked).await.is_err() {
            // The listening task ends only with its runtime.
            std::future::pending::<()>().await;
        }
    }
}

async fn next(interrupts: &mut Signal, terminations: &mut Signal) {
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = terminations.recv() => {}
    }
}
