#!/bin/sh
# Write a kubeconfig with a new lasting token of a portal account, in one step; the
# portal finds the new token by itself. Run it with the rights of an administrator of the cluster:
#   deploy/rotate-token.sh gpuportal-reader /etc/gpuportal/west.kubeconfig [CONTEXT]
# The Secrets of earlier tokens stay until you delete them: the last lines say how.
set -eu
account=${1:?which account: gpuportal-reader or gpuportal-quota-writer}
file=${2:?which kubeconfig is to be written}
context=${3:-$(kubectl config current-context)}
namespace=${NAMESPACE:-gpuportal}
secret=$account-$(date -u +%Y%m%d%H%M%S)
kubectl="kubectl --context $context --namespace $namespace"

$kubectl create --filename - >&2 <<YAML
apiVersion: v1
kind: Secret
metadata:
  name: $secret
  labels: {gpuportal/account: $account}
  annotations: {kubernetes.io/service-account.name: $account}
type: kubernetes.io/service-account-token
YAML
token=
tries=0
while [ -z "$token" ]; do
  tries=$((tries + 1))
  [ "$tries" -le 30 ] || { echo "no token in the Secret $secret: is there an account $account?" >&2; exit 1; }
  token=$($kubectl get secret "$secret" --output 'jsonpath={.data.token}' | base64 -d)
  [ -n "$token" ] || sleep 1
done
server=$(kubectl config view --context "$context" --minify --output 'jsonpath={.clusters[0].cluster.server}')
authority=$($kubectl get secret "$secret" --output 'jsonpath={.data.ca\.crt}')

umask 077
cat >"$file.new" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "$server", certificate-authority-data: "$authority"}}]
users: [{name: $account, user: {token: "$token"}}]
contexts: [{name: $account, context: {cluster: cluster, user: $account}}]
current-context: $account
YAML
# As readable as the file before: the portal may run as another user.
[ ! -e "$file" ] || { chmod --reference="$file" "$file.new"; chown --reference="$file" "$file.new"; }
mv "$file.new" "$file"
echo "wrote $file; the portal reads it with its next request. See: python manage.py doctor" >&2
echo "then take the earlier tokens back:" >&2
echo "  $kubectl get secrets --selector gpuportal/account=$account" >&2
echo "  $kubectl delete secret NAME    # any but $secret, and $account-token if it is there" >&2
