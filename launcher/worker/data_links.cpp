#include "launcher/worker/data_links.h"

#include "launcher/worker/stage_settings.h"

namespace strait::worker {

DataLinks::DataLinks(net::Node& node, plan::StageJob job) : node_(node), job_(std::move(job)) {
  const MutexLock lock(mutex_);
  for (const plan::Plan::Link& link : job_.plan.links) {
    // All before Ready: a peer may connect as soon as the coordinator has told it the endpoint.
    if (job_.binds.contains(link.name)) bound_[link.name] = bind(link, endpoints_);
  }
}

std::unique_ptr<net::Link> DataLinks::bind(const plan::Plan::Link& link, Endpoints& endpoints) {
  const auto [first, last] = job_.plan.recipe.hosts.ports;
  net::BindAddress address;
  address.host = job_.binds.at(link.name);
  address.first_port = static_cast<std::uint16_t>(first);
  address.last_port = static_cast<std::uint16_t>(last);
  std::unique_ptr<net::Listener>& listener = listeners_[link.name];
  listener.reset();  // freed first: its port may be the only one in the range
  listener = node_.listen(address);
  endpoints[link.name] = listener->endpoint();
  return listener->expect(link_options(job_, link));
}

// Decided by the plan. Routes of the launch decide which end binds.
bool DataLinks::is_local(const plan::Plan::Link& link) const {
  return link.listens == job_.process || link.connects == job_.process;
}

net::ProcessName DataLinks::peer_of(const plan::Plan::Link& link) const {
  return link.listens == job_.process ? link.connects : link.listens;
}

bool DataLinks::is_replaceable(const plan::Plan::Link& link) const {
  return job_.plan.recipe.sync.on_loss == recipe::LossRule::continue_run &&
         peer_of(link).replica != job_.process.replica;
}

stages::StageLinks DataLinks::connect(const Endpoints& endpoints) {
  const MutexLock lock(mutex_);
  stages::StageLinks made;
  made.chunks.resize(job_.plan.process(job_.process).chunks.size());
  if (const std::int64_t replicas = job_.plan.recipe.pipeline.replicas; replicas > 1) {
    made.replicas.resize(static_cast<std::size_t>(replicas));
    if (job_.process.stage == 0) made.consensus.resize(static_cast<std::size_t>(replicas));
  }
  for (const plan::Plan::Link& link : job_.plan.links) {
    if (!is_local(link)) continue;
    std::unique_ptr<net::Link> one = std::move(bound_[link.name]);
    // Only replicas may be absent; a missing endpoint of another link is an error.
    const bool known = endpoints.contains(link.name);
    const bool present = !is_replaceable(link) || known;
    if (one == nullptr && present && !known) {
      throw base::MessageError("no process has said where " + link.name + " listens");
    }
    if (one == nullptr && present) {
      one = node_.connect(endpoints.at(link.name), link_options(job_, link));
    }
    // The stage holds this link for good; replace_links() exchanges the link inside it.
    if (is_replaceable(link)) {
      auto kept = std::make_unique<net::ReplaceableLink>(link.name, peer_of(link).describe(),
                                                         present ? std::move(one) : nullptr);
      replica_links_[link.name].link = kept.get();
      one = std::move(kept);
    }
    watched_.push_back(watched(link, one.get()));
    link_slot(made, link) = std::move(one);
  }
  bound_.clear();
  return made;
}

DataLinks::Endpoints DataLinks::listen_for_replica(
    std::uint32_t replica, const std::map<std::string, std::string>& keys,
    const std::map<std::string, std::string>& binds) {
  const MutexLock lock(mutex_);
  // The processes of the replica are new ones. With the former keys they would not be let in.
  for (const auto& [process, key] : keys) job_.peer_keys[process] = key;
  joining_ = replica;
  Endpoints endpoints;
  for (const plan::Plan::Link& link : job_.plan.links) {
    if (!is_local(link) || peer_of(link).replica != replica) continue;
    ReplicaLink& kept = replica_links_.at(link.name);
    // Of an attempt that failed: its listener may hold the only free port.
    kept.next.reset();
    job_.binds.erase(link.name);
    const auto here = binds.find(link.name);
    if (here == binds.end()) continue;
    job_.binds.insert(*here);
    kept.next = bind(link, endpoints);
  }
  return endpoints;
}

void DataLinks::connect_to_replica(const Endpoints& endpoints) {
  const MutexLock lock(mutex_);
  for (const plan::Plan::Link& link : job_.plan.links) {
    if (!is_local(link) || peer_of(link).replica != joining_) continue;
    ReplicaLink& kept = replica_links_.at(link.name);
    const auto found = endpoints.find(link.name);
    if (kept.next == nullptr && found != endpoints.end()) {
      kept.next = node_.connect(found->second, link_options(job_, link));
    }
  }
}

void DataLinks::replace_links(std::uint32_t replica, const sync::MembershipTracker& tracker) {
  const MutexLock lock(mutex_);
  for (const plan::Plan::Link& link : job_.plan.links) {
    if (!is_local(link) || peer_of(link).replica != replica) continue;
    ReplicaLink& kept = replica_links_.at(link.name);
    kept.link->replace(std::move(kept.next));
    if (tracker.contains(replica)) continue;
    // The replica has left again meanwhile, when only the former link was aborted.
    kept.link->abort(net::LinkError(net::LinkError::Kind::aborted, "the replica has left again"));
  }
}

StageReporter::WatchedLink DataLinks::watched(const plan::Plan::Link& link, net::Link* made) const {
  using Carries = StageReporter::Carries;
  const bool below = link.listens == job_.process;
  Carries carries = Carries::weights;
  if (link.use == plan::Plan::Use::boundary) {
    carries = below ? Carries::gradients : Carries::activations;
  } else if (link.use == plan::Plan::Use::tie) {
    carries = Carries::tied_rows;
  }
  return {made, peer_of(link), carries};
}

std::unique_ptr<net::Link>& DataLinks::link_slot(stages::StageLinks& made,
                                                 const plan::Plan::Link& link) const {
  const bool below = link.listens == job_.process;
  const net::ProcessName peer = peer_of(link);
  switch (link.use) {
    case plan::Plan::Use::tie:
      return made.tie;
    case plan::Plan::Use::replica:
      return made.replicas.at(peer.replica);
    case plan::Plan::Use::consensus:
      return made.consensus.at(peer.replica);
    case plan::Plan::Use::boundary:
      break;
  }
  const std::int64_t index = (link.position + (below ? 1 : 0)) / job_.plan.recipe.pipeline.stages;
  stages::ChunkLinks& links = made.chunks.at(static_cast<std::size_t>(index));
  (below ? links.upstream_name : links.downstream_name) = peer.describe();
  return below ? links.upstream : links.downstream;
}

}  // namespace strait::worker
