#!/bin/sh
# Installs a build of strait on this host, in ~/.strait. `strait install` (host_install.cpp) runs it
# over ssh and sends on stdin: the build's id, lines "hash path" up to "end", and a tar archive of
# the files that this host has not got, each named by the last part of its path. Lines on stdout
# that begin with "strait-install-" are for strait.
#
# Files are kept by hash, in content/HASH/data; a build links them. Of an installation that is cut
# off the files that are whole stay, unless they have filled the disk.
set -eu
umask 022
root=$HOME/.strait
mkdir -p "$root/content" "$root/builds"
cd "$root"
# Hosts may share a home.
me=$(uname -n).$$
in=incoming.$me
next=next.$me

is_whole() { echo "$1  $2" | sha256sum -c > /dev/null 2>&1; }

keep() {
  mkdir -p "content/$1"
  mv "$2" "content/$1/data"
}

keep_whole_files() {
  [ -e "$next/files" ] || return 0
  head -c 1048576 /dev/zero > "$in/probe" 2> /dev/null || return 0
  while read -r hash path; do
    if is_whole "$hash" "$in/${path##*/}"; then keep "$hash" "$in/${path##*/}"; fi
  done < "$next/files"
}
trap 'keep_whole_files || :; rm -rf "$in" "$next"' EXIT
trap 'exit 1' HUP INT TERM
for old in incoming next; do
  find . -maxdepth 1 -name "$old.*" -mmin +1440 -exec rm -rf {} +
done

echo "strait-install-here $(uname -m)"
if nvidia-smi -L 2> /dev/null | grep -q ^GPU; then echo strait-install-gpu; fi
for data in content/*/data; do
  hash=${data#content/}
  hash=${hash%/data}
  if [ -e "$data" ] && [ ${#hash} = 64 ]; then echo "strait-install-has $hash"; fi
done
echo strait-install-asks

read -r id
mkdir "$in" "$next" "$next/bin" "$next/lib" "$next/libexec"
while read -r hash path; do
  if [ "$hash" = end ]; then break; fi
  echo "$hash  $path"
done > "$next/files"
tar -xof - -C "$in"
cat > /dev/null

# One at a time puts files in place, links and removes them, where there is flock (its status is 1
# while another one holds the lock). The others wait for half an hour at most, and say so.
exec 9> install-lock
waits=0
while :; do
  status=0
  flock -n 9 2> /dev/null || status=$?
  [ "$status" = 1 ] || break
  waits=$((waits + 1))
  if [ "$waits" -gt 900 ]; then
    echo strait-install-busy
    exit 1
  fi
  echo strait-install-waits
  sleep 2
done

while read -r hash path; do
  if [ -e "$in/${path##*/}" ]; then keep "$hash" "$in/${path##*/}"; fi
done < "$next/files"
# What another host has removed since it was listed is sent again, like what is damaged.
while read -r hash path; do
  data=content/$hash/data
  ln "$data" "$next/$path" 2> /dev/null || cp "$data" "$next/$path" || [ ! -e "$data" ]
  if ! is_whole "$hash" "$next/$path"; then
    rm -rf "content/$hash"
    echo "strait-install-torn $path"
    exit 1
  fi
done < "$next/files"

cat > "$next/bin/strait-stage" << 'END'
#!/bin/sh
# Starts this build with the libraries that came with it, wherever the folder lies.
build=$(dirname "$(readlink -f "$0")")/..
LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
exec "$build/libexec/strait-stage" "$@"
END
chmod 755 "$next"/bin/* "$next"/libexec/*
said=$("$next/bin/strait-stage" --check 9>&- | head -n 1)
if [ "$said" != "strait-stage $id" ]; then
  echo "strait-install-other $said"
  exit 1
fi
if cmp -s "$next/files" "builds/$id/files"; then
  touch "builds/$id"
else
  rm -rf "builds/$id"
  mv "$next" "builds/$id"
fi
ln -s "builds/$id/bin" "$in/bin"
mv -T "$in/bin" bin

# Two builds stay, and those that a process of this host has mapped: a live run still starts stages
# of its build. Then what no build links goes.
# shellcheck disable=SC2012  # find sorts by no age; the names are ids of builds
ls -1t builds | tail -n +3 | while read -r old; do
  if ! grep -Fqs "/builds/$old/" /proc/[0-9]*/maps; then rm -rf "builds/$old"; fi
done
find content -maxdepth 2 -name data -type f -links 1 | while read -r data; do
  hash=${data#content/}
  hash=${hash%/data}
  if [ ${#hash} = 64 ]; then rm -rf "content/$hash"; fi
done
echo strait-install-done
