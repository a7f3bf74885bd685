//! Schedulers that a program registers beside those of this crate.

use std::sync::{PoisonError, RwLock};

use crate::{ElevatorType, all, find};

static REGISTERED: RwLock<Vec<&'static ElevatorType>> = RwLock::new(Vec::new());

/// Registers a scheduler of the calling program under its name. It replaces an earlier registration
/// of the same name in later look-ups.
///
/// # Errors
/// If a scheduler of this crate has the name; the message is for the user.
pub fn register(kind: ElevatorType) -> Result<(), String> {
    if find(kind.name).is_some() {
        return Err(format!(
            "there is a scheduler called {}; give yours another name",
            kind.name
        ));
    }
    let kinds = REGISTERED.write();
    let mut kinds = kinds.unwrap_or_else(PoisonError::into_inner);
    kinds.retain(|known| known.name != kind.name);
    kinds.push(Box::leak(Box::new(kind)));
    Ok(())
}

/// All schedulers, registered ones last.
pub fn known() -> Vec<&'static ElevatorType> {
    let registered = REGISTERED.read();
    let registered = registered.unwrap_or_else(PoisonError::into_inner);
    all().iter().chain(registered.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchedulerChoice;

    #[test]
    fn a_registered_scheduler_is_found_and_takes_no_name_of_ours() {
        let noop = find("noop").expect("is ours");
        let own = ElevatorType {
            name: "registered-for-a-test",
            ..*noop
        };
        assert!(SchedulerChoice::named(own.name).is_err());
        register(own).expect("the name is free");
        register(own).expect("one may take the place of its own kind");
        let choice = SchedulerChoice::named(own.name).expect("is known now");
        assert_eq!(choice.kind.name, own.name);
        let same = known();
        assert_eq!(same.iter().filter(|kind| kind.name == own.name).count(), 1);
        let error = register(*noop).expect_err("is ours");
        assert!(error.contains("another name"), "{error}");
    }
}
