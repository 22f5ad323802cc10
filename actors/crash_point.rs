//! Points at which a test build dies on order, as if killed. In other builds they are nothing.

/// Kills the process when the fail point `name` is set to `return`.
#[cfg(feature = "failpoints")]
pub fn crash_point(name: &str) {
    fail::fail_point!(name, |_| {
        let me = rustix::process::getpid();
        if rustix::process::kill_process(me, rustix::process::Signal::KILL).is_err() {
            std::process::abort();
        }
    });
}

/// Kills the process when the fail point `name` is set: only in builds with fail points.
#[cfg(not(feature = "failpoints"))]
pub fn crash_point(_name: &str) {}
