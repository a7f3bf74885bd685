//! NBD URIs (`doc/uri.md` of NetworkBlockDevice/nbd).

use std::path::PathBuf;

/// The default port.
const DEFAULT_PORT: u16 = 10809;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// Host and port.
    Tcp(String, u16),
}

/// TLS parameters of a URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UriTls {
    /// Folder of the certificates (`tls-certificates`).
    pub certificates: Option<PathBuf>,
    /// The name that the server's certificate must have (`tls-hostname`).
    pub hostname: String,
}

/// An export on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Address of the server.
    pub address: Address,
    /// Name of the export; empty for the default.
    pub export: String,
    /// TLS parameters, if the URI requires TLS.
    pub tls: Option<UriTls>,
}

impl Uri {
    /// Parses `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`. The schemes `nbds`
    /// and `nbds+unix` require TLS and accept `tls-certificates=DIR` and `tls-hostname=NAME`, like
    /// libnbd.
    ///
    /// # Errors
    /// If it is neither; the message says what is.
    pub fn parse(text: &str) -> Result<Uri, String> {
        let fault = |why: &str| {
            format!(
                "{text:?}: {why}; write nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH"
            )
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| fault("no URI"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let export = decode(path).ok_or_else(|| fault("the export's name is not well encoded"))?;
        let value = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        let (plain, is_tls) = match scheme {
            "nbds" => ("nbd", true),
            "nbds+unix" => ("nbd+unix", true),
            other => (other, false),
        };
        let address = match plain {
            "nbd" => {
                let (host, port) = host_and_port(authority).ok_or_else(|| fault("no such port"))?;
                if host.is_empty() {
                    return Err(fault("no host"));
                }
                Address::Tcp(host, port)
            }
            "nbd+unix" => {
                let socket = value("socket").and_then(decode);
                Address::Unix(PathBuf::from(socket.ok_or_else(|| fault("no socket"))?))
            }
            _ => return Err(fault("an unknown scheme")),
        };
        let hostname = match (&address, value("tls-hostname").and_then(decode)) {
            (_, Some(name)) => name,
            (Address::Tcp(host, _), None) => host.clone(),
            (Address::Unix(_), None) => "localhost".to_string(),
        };
        let certificates = value("tls-certificates").and_then(decode);
        let tls = is_tls.then(|| UriTls {
            certificates: certificates.map(PathBuf::from),
            hostname,
        });
        Ok(Uri {
            address,
            export,
            tls,
        })
    }
}

fn host_and_port(authority: &str) -> Option<(String, u16)> {
    // An IPv6 address is in brackets.
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok()?,
        None => DEFAULT_PORT,
    };
    Some((host.to_string(), port))
}

/// Decodes `%XX` to bytes.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_a_server_and_an_export() {
        let unix = |path: &str, export: &str| Uri {
            address: Address::Unix(PathBuf::from(path)),
            export: export.to_string(),
            tls: None,
        };
        let tcp = |host: &str, port, export: &str| Uri {
            address: Address::Tcp(host.to_string(), port),
            export: export.to_string(),
            tls: None,
        };
        let parse = Uri::parse;
        assert_eq!(
            parse("nbd+unix:///?socket=/a/b.sock"),
            Ok(unix("/a/b.sock", ""))
        );
        assert_eq!(parse("nbd+unix:///x%20y?socket=s"), Ok(unix("s", "x y")));
        assert_eq!(parse("nbd://localhost"), Ok(tcp("localhost", 10809, "")));
        assert_eq!(parse("nbd://[::1]:5/e"), Ok(tcp("::1", 5, "e")));
        for wrong in [
            "",
            "nbd:",
            "http://x",
            "nbd://:1/",
            "nbd+unix:///",
            "nbd://h:x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("nbd://h/%f").is_err());
        let tls = |text| parse(text).expect("a URI").tls.expect("TLS");
        assert_eq!(tls("nbds://h").hostname, "h");
        let asked = tls("nbds+unix:///?socket=s&tls-hostname=n&tls-certificates=/a%20b");
        assert_eq!(asked.hostname, "n");
        assert_eq!(asked.certificates, Some(PathBuf::from("/a b")));
        assert_eq!(tls("nbds+unix:///?socket=s").hostname, "localhost");
    }
}
