//! The user and the rights of the container.

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use super::spec::Spec;

/// Keeps the capabilities of this process over the start of the next program, also for another user than root.
pub(super) fn keep_all() -> rustix::io::Result<()> {
    let all = capabilities(None)?.permitted;
    set_capabilities(None, CapabilitySets { effective: all, permitted: all, inheritable: all })?;
    all.iter().try_for_each(|capability| configure_capability_in_ambient_set(capability, true))
}

/// Becomes the user of the container, with its capabilities.
pub(super) fn drop(spec: &Spec) -> Result<(), String> {
    let failed = |what: &str, error: rustix::io::Errno| format!("{what}: {error}");
    let kept = kept(spec).map_err(|error| failed("capabilities", error))?;
    for capability in CapabilitySet::all().iter().filter(|capability| !kept.contains(*capability)) {
        // A kernel that does not know a capability has nothing to remove.
        let _ = remove_capability_from_bounding_set(capability);
    }
    if !spec.own_users {
        let (user, group) = (Uid::from_raw(spec.user), Gid::from_raw(spec.user));
        set_thread_groups(&[]).map_err(|error| failed("groups", error))?;
        set_thread_res_gid(group, group, group).map_err(|error| failed("group", error))?;
        set_thread_res_uid(user, user, user).map_err(|error| failed("user", error))?;
    }
    clear_ambient_capability_set().map_err(|error| failed("capabilities", error))?;
    // Capabilities of root come back with the next program, up to the bounding set. Those of others are gone.
    let own = if spec.user == 0 { kept } else { CapabilitySet::empty() };
    let sets = CapabilitySets { effective: own, permitted: own, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(|error| failed("capabilities", error))?;
    if !spec.may_escalate {
        set_no_new_privs(true).map_err(|error| failed("no_new_privs", error))?;
    }
    Ok(())
}

fn kept(spec: &Spec) -> rustix::io::Result<CapabilitySet> {
    // A privileged container has what its runtime has, which on some machines is less than all.
    let Some(names) = &spec.capabilities else { return Ok(capabilities(None)?.permitted) };
    let of = |name: &String| CapabilitySet::from_name(name.trim_start_matches("CAP_"));
    Ok(names.iter().filter_map(of).collect())
}
