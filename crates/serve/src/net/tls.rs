//! TLS: certificates as nbdkit, libnbd and QEMU lay them out, and who must use
//! them.
//!
//! rustls knows no pre-shared keys, so that certificates are the only way.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use blklab_nbd::Tls;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::channel::Channel;

/// Which clients must use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// None: there is none.
    Off,
    /// Those of other machines; others may.
    #[default]
    On,
    /// All.
    Require,
}

/// Who must use TLS, and with which certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The folder of certificates; without one there is no TLS.
    pub certificates: Option<PathBuf>,
    /// Clients must show a certificate of the folder's authority.
    pub verify_peer: bool,
    /// Who must use it.
    pub mode: TlsMode,
    /// Clients of other machines may do without.
    pub insecure: bool,
}

/// A server's side of TLS.
#[derive(Clone)]
pub(crate) struct ServerTls {
    config: Option<Arc<ServerConfig>>,
    settings: TlsSettings,
}

impl ServerTls {
    /// Reads the certificates.
    pub(crate) fn new(settings: &TlsSettings) -> Result<ServerTls, String> {
        let folder = settings.certificates.as_deref();
        let config = match folder.filter(|_| settings.mode != TlsMode::Off) {
            Some(folder) => Some(Arc::new(server_config(folder, settings.verify_peer)?)),
            None => None,
        };
        Ok(ServerTls {
            config,
            settings: settings.clone(),
        })
    }

    /// What clients of a listener are asked for, which other machines can reach
    /// if it is `public`; `None` where they cannot be served at all.
    pub(crate) fn policy(&self, public: bool) -> Option<Tls> {
        let may_be_plain = !public || self.settings.insecure;
        match (&self.config, self.settings.mode) {
            (Some(_), TlsMode::Require) => Some(Tls::Required),
            (Some(_), _) if may_be_plain => Some(Tls::Offered),
            (Some(_), _) => Some(Tls::Required),
            (None, _) => may_be_plain.then_some(Tls::Off),
        }
    }

    /// Does the TLS handshake, until `end`.
    pub(crate) fn accept(&self, channel: &mut Channel, end: Instant) -> Result<(), Errno> {
        let config = self.config.clone().ok_or(Errno::PROTO)?;
        let tls = rustls::ServerConnection::new(config).map_err(|_| Errno::PROTO)?;
        channel.start_tls(tls.into());
        while channel.is_handshaking() || channel.holds_unsent() {
            match channel.handshake() {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut what = PollFlags::IN;
                    what.set(PollFlags::OUT, channel.holds_unsent());
                    channel.wait_ready(what, end)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Why an address is not listened on without TLS.
pub(crate) fn tls_needed(address: &str) -> String {
    format!(
        "{address} can be reached by others; give --tls-certificates DIR, listen on 127.0.0.1, or say --insecure-no-tls"
    )
}

/// A client's side of TLS: certificates in `folder`, a server called `name`.
pub(crate) fn connect(channel: &mut Channel, folder: &Path, name: &str) -> Result<(), String> {
    let config = Arc::new(client_config(folder)?);
    let server = ServerName::try_from(name.to_string())
        .map_err(|_| format!("{name:?} is no name that a certificate could have"))?;
    let tls = rustls::ClientConnection::new(config, server).map_err(|e| e.to_string())?;
    channel.start_tls(tls.into());
    while channel.is_handshaking() || channel.holds_unsent() {
        match channel.handshake() {
            Ok(()) | Err(Errno::INTR) => {}
            Err(error) => {
                let why = channel.fault().map_or(error.to_string(), String::from);
                return Err(format!("TLS: {why}"));
            }
        }
    }
    Ok(())
}

/// The names that nbdkit, libnbd and QEMU look for in a folder.
fn server_config(folder: &Path, verify_peer: bool) -> Result<ServerConfig, String> {
    let chain = certificates(&folder.join("server-cert.pem"))?;
    let key = private_key(&folder.join("server-key.pem"))?;
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = match verify_peer {
        true => {
            let roots = Arc::new(authorities(folder)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            builder.with_client_cert_verifier(verifier.build().map_err(|e| e.to_string())?)
        }
        false => builder.with_no_client_auth(),
    };
    builder
        .with_single_cert(chain, key)
        .map_err(|e| format!("{}: {e}", folder.join("server-cert.pem").display()))
}

fn client_config(folder: &Path) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(authorities(folder)?);
    let own = folder.join("client-cert.pem");
    if !own.exists() {
        return Ok(builder.with_no_client_auth());
    }
    let chain = certificates(&own)?;
    let key = private_key(&folder.join("client-key.pem"))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|e| format!("{}: {e}", own.display()))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn authorities(folder: &Path) -> Result<RootCertStore, String> {
    let path = folder.join("ca-cert.pem");
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&path)? {
        let added = roots.add(certificate);
        added.map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fault = |e: rustls::pki_types::pem::Error| format!("{}: {e}", path.display());
    let found = CertificateDer::pem_file_iter(path).map_err(fault)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(fault)?;
    match found.is_empty() {
        true => Err(format!("{}: there is no certificate in it", path.display())),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(settings: TlsSettings, with: bool) -> [Option<Tls>; 2] {
        let chosen = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring knows TLS")
            .with_no_client_auth()
            .with_cert_resolver(chosen);
        let tls = ServerTls {
            config: with.then(|| Arc::new(config)),
            settings,
        };
        [tls.policy(false), tls.policy(true)]
    }

    #[test]
    fn only_who_is_near_may_do_without() {
        let settings = |mode, insecure| TlsSettings {
            mode,
            insecure,
            ..TlsSettings::default()
        };
        let (on, require) = (TlsMode::On, TlsMode::Require);
        let (off, offered, required) = (Some(Tls::Off), Some(Tls::Offered), Some(Tls::Required));
        assert_eq!(policies(settings(on, false), false), [off, None]);
        assert_eq!(policies(settings(on, true), false), [off, off]);
        assert_eq!(policies(settings(on, false), true), [offered, required]);
        assert_eq!(policies(settings(on, true), true), [offered, offered]);
        assert_eq!(
            policies(settings(require, true), true),
            [required, required]
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let fault = server_config(folder.path(), false).expect_err("nothing there");
        assert!(fault.contains("server-cert.pem"), "{fault}");
        std::fs::write(folder.path().join("server-cert.pem"), "nothing").expect("written");
        let fault = server_config(folder.path(), false).expect_err("nothing in it");
        assert!(fault.contains("no certificate"), "{fault}");
    }
}
