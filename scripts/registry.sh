# shellcheck shell=bash disable=SC2034
# Options that push.sh and manifests.sh share. Source it after lib.sh, and call `read_options USAGE "$@"`.

registry='' version='' out=build/install kubernetes='' pull_secret='' insecure='' compile=yes

read_options() { # USAGE ARGUMENT...
    local usage=$1
    shift
    while (($#)); do
        case $1 in
            --registry | --version | --out | --kubernetes | --pull-secret)
                (($# > 1)) || fail "$1 has no value" "usage: $usage"
                case $1 in
                    --registry) registry=$2 ;;
                    --version) version=$2 ;;
                    --out) out=$2 ;;
                    --kubernetes) kubernetes=$2 ;;
                    --pull-secret) pull_secret=$2 ;;
                esac
                shift
                ;;
            --insecure) insecure=yes ;;
            --no-build) compile='' ;;
            *) fail "unknown argument $1" "usage: $usage" ;;
        esac
        shift
    done
    version=${version:-$(scripts/version.sh)}
    kubernetes=${kubernetes:-1.36}
    check_options "$usage"
}

# A name that a registry would refuse is refused before anything is built.
check_options() { # USAGE
    local usage=$1 host='[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?' word='[a-z0-9]+([._-]+[a-z0-9]+)*'
    [[ -n $registry ]] || fail "no registry is given" "usage: $usage" \
        "REGISTRY is a host with a path, such as registry.example.org/team: each image gets a name below it"
    [[ $registry =~ ^$host(/$word)*$ ]] ||
        fail "REGISTRY is $registry" \
            "it is a host with a path in small letters, such as registry.example.org/team, without https://"
    # Container runtimes take a first word without dot and port for a path on Docker Hub.
    [[ ${registry%%/*} == *[.:]* || ${registry%%/*} == localhost ]] ||
        fail "REGISTRY is $registry, which begins with no host" \
            "name the host too, such as registry.example.org/$registry"
    [[ $version =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$ ]] ||
        fail "VERSION is $version" "it is the tag of the images: letters, digits and _.-, 128 of them at most"
    [[ $kubernetes =~ ^v?1\.[0-9]+ ]] ||
        fail "KUBERNETES is $kubernetes" "it is the version of the cluster, such as 1.35"
    [[ $pull_secret =~ ^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$ ]] ||
        fail "PULL_SECRET is $pull_secret" "it is the name of a Secret"
}
