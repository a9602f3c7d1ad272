//! End of the service, and events until then.

use std::future::pending;

use tracing::warn;

use super::reload::ConfigWatch;
use crate::{
    app::{Running, Successor},
    cli::signals::{SignalRequest, Signals, Stop},
};

/// Reason for the end of the service.
pub(super) enum End {
    /// A signal.
    Signal(Stop),
    /// Takeover by another andante.
    Successor(Successor),
}

/// Serves until a signal asks for the end or another andante takes over. Loads the configuration again whenever a
/// signal asks for it, or the file has changed.
pub(super) async fn until_ended(running: &mut Running, signals: &mut Signals, mut watch: Option<ConfigWatch>) -> End {
    let mut successors = running.successors();
    if let Some(watch) = &mut watch {
        watch.loaded(running.config());
    }
    loop {
        let changed = async {
            match &mut watch {
                Some(watch) => watch.changed(running.config()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            request = signals.next() => match request {
                SignalRequest::Stop(stop) => return End::Signal(stop),
                SignalRequest::Reload => {}
            },
            () = changed => {}
            successor = successors.next() => return End::Successor(successor),
        }
        match &mut watch {
            Some(watch) => watch.reload(running).await,
            None => warn!(
                signal = "SIGHUP",
                "not reloaded: there is no configuration file (--config, ANDANTE_CONFIG), or it is a pipe; flags and \
                 variables take a restart (SIGTERM lets requests finish first)"
            ),
        }
    }
}
