#pragma once

#include "framework/mutex.h"
#include "framework/net/node.h"
#include "framework/net/replaceable_link.h"
#include "framework/sync/membership.h"
#include "launcher/recipe/stage_job.h"
#include "launcher/worker/stage_reporter.h"
#include "stages/stage_options.h"

namespace strait::worker {

// The data links of a stage process. Binds its listeners, and connects the other links once their
// endpoints are known. When a replica rejoins, new links to it are made while this stage trains,
// and replace the former ones when the replica joins.
//
// The node outlives this object.
class DataLinks {
 public:
  using Endpoints = std::map<std::string, std::string>;  // by name of the link

  DataLinks(net::Node& node, plan::StageJob job);

  // Endpoints of the listeners that the constructor bound.
  const Endpoints& endpoints() const { return endpoints_; }

  // Call it once, on the training thread. Replicas without an endpoint are absent and may rejoin.
  stages::StageLinks connect(const Endpoints& endpoints) STRAIT_EXCLUDES(mutex_);
  // All links of connect(). They are owned by the StageLinks that it returned.
  const std::vector<StageReporter::WatchedLink>& watched() const { return watched_; }

  // For a replica that rejoins: binds the listeners of links with it again, at the addresses in
  // `binds`, and returns their endpoints. `keys`: keys of its processes, by name. Any thread.
  Endpoints listen_for_replica(std::uint32_t replica,
                               const std::map<std::string, std::string>& keys,
                               const std::map<std::string, std::string>& binds)
      STRAIT_EXCLUDES(mutex_);
  void connect_to_replica(const Endpoints& endpoints) STRAIT_EXCLUDES(mutex_);
  // Starts to use the new links to a replica that has joined. Call it on the training thread.
  void replace_links(std::uint32_t replica, const sync::MembershipTracker& tracker)
      STRAIT_EXCLUDES(mutex_);

 private:
  // A link to another replica, which is replaced when that replica rejoins.
  struct ReplicaLink {
    net::ReplaceableLink* link = nullptr;
    std::unique_ptr<net::Link> next;  // to the replica that is joining; null: none
  };

  std::unique_ptr<net::Link> bind(const plan::Plan::Link& link, Endpoints& endpoints)
      STRAIT_REQUIRES(mutex_);
  bool is_replaceable(const plan::Plan::Link& link) const;
  net::ProcessName peer_of(const plan::Plan::Link& link) const;
  bool is_local(const plan::Plan::Link& link) const;
  StageReporter::WatchedLink watched(const plan::Plan::Link& link, net::Link* made) const;
  std::unique_ptr<net::Link>& link_slot(stages::StageLinks& made,
                                        const plan::Plan::Link& link) const;

  net::Node& node_;
  Endpoints endpoints_;
  std::vector<StageReporter::WatchedLink> watched_;
  Mutex mutex_;
  plan::StageJob job_;  // peer_keys and binds change when a replica rejoins, under mutex_
  std::map<std::string, std::unique_ptr<net::Listener>> listeners_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<net::Link>> bound_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::string, ReplicaLink> replica_links_ STRAIT_GUARDED_BY(mutex_);
  std::uint32_t joining_ STRAIT_GUARDED_BY(mutex_) = 0;
};

}  // namespace strait::worker
