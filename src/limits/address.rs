//! Keys that are IP addresses: folded to a prefix, in one textual form.

use std::net::IpAddr;

use ipnet::IpNet;

/// How many leading bits of an address are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefixes {
    /// Of an IPv4 address, and of an IPv6 address that maps one: 1 to 32.
    pub v4: u8,
    /// Of any other IPv6 address: 1 to 128.
    pub v6: u8,
}

impl Default for Prefixes {
    /// One host; and what a provider gives to one customer at the least.
    fn default() -> Self {
        Self { v4: 32, v6: 64 }
    }
}

impl Prefixes {
    /// The key under which an address is counted: `203.0.113.7`, `2001:db8:1:2::/64`. A prefix as the key is folded as
    /// its address.
    ///
    /// # Errors
    /// What is no address.
    pub fn fold(&self, text: &str) -> Result<String, String> {
        let address = parse_address(text).ok_or_else(|| {
            let like = "an IPv4 or IPv6 address, e.g. \"203.0.113.7\" or \"2001:db8::1\"";
            format!("{text:?} is no IP address: this limit counts {like}")
        })?;
        let (bits, all) = if address.is_ipv4() { (self.v4, 32) } else { (self.v6, 128) };
        if bits >= all {
            return Ok(address.to_string());
        }
        let net = IpNet::new(address, bits).map_err(|error| error.to_string())?;
        Ok(net.trunc().to_string())
    }
}

/// An address; an IPv6 address that maps an IPv4 address is that. So is the address of a prefix.
pub(super) fn parse_address(text: &str) -> Option<IpAddr> {
    let plain = text.parse::<IpAddr>().ok();
    let address = plain.or_else(|| text.parse::<IpNet>().ok().map(|net| net.addr()))?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form_for_one_prefix() {
        let fold = |text: &str| Prefixes::default().fold(text);
        for (text, key) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("::1", "::/64"),
            ("0:0:0:0:0:0:0:1", "::/64"),
            ("2001:DB8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::/64", "2001:db8:1:2::/64"),
        ] {
            assert_eq!(fold(text).as_deref(), Ok(key), "{text}");
            // What was folded is its own key.
            assert_eq!(fold(key).as_deref(), Ok(key));
        }
        let wide = Prefixes { v4: 24, v6: 56 };
        assert_eq!(wide.fold("203.0.113.7").as_deref(), Ok("203.0.113.0/24"));
        assert_eq!(wide.fold("2001:db8:1:2ff::1").as_deref(), Ok("2001:db8:1:200::/56"));
        assert_eq!(Prefixes { v4: 32, v6: 128 }.fold("0:0::1").as_deref(), Ok("::1"));
        for bad in ["", "42", "1.2.3", "1.2.3.4:80", "[::1]", "fe80::1%eth0", "1.2.3.4/33", "example.com"] {
            assert!(fold(bad).unwrap_err().contains("no IP address"), "{bad}");
        }
    }
}
