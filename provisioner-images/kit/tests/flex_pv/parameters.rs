//! `flex-pv parameters`, as a script calls it.

use crate::tool::flex_pv;

#[test]
fn a_script_refuses_names_that_it_does_not_read() {
    let run = |operation: &str, names: &str| {
        let extra = [("OPERATION", operation), ("PARAMETER_NAMES", names), ("ATTRIBUTES", r#"{"iops":"5"}"#)];
        flex_pv(&["parameters", "zone", "on-delete"], &extra, "")
    };
    let good = run("provision", "on-delete,zone,example.com/team");
    assert!(good.code == 0 && good.err.is_empty() && good.termination_message.is_empty(), "{good:?}");
    let bad = run("provision", "on-deletion");
    assert_eq!(bad.code, 78, "{bad:?}");
    assert!(bad.termination_message.contains("`on-deletion` (did you mean `on-delete`?)"), "{bad:?}");
    assert!(bad.termination_message.contains("class `silver`"), "{bad:?}");
    // An existing volume stays usable. A script may have operations of its own.
    for operation in ["delete", "expand", "list", "attach"] {
        let noted = run(operation, "on-deletion");
        assert!(noted.code == 0 && noted.err.contains("`on-deletion`"), "{operation}: {noted:?}");
        assert!(noted.out.is_empty() && noted.termination_message.is_empty(), "{operation}: {noted:?}");
    }
    assert_eq!(run("modify", "iops,zone").code, 78);
    assert_eq!(flex_pv(&["parameters"], &[("PARAMETER_NAMES", "zone")], "").code, 78, "the script reads no parameter");
}
