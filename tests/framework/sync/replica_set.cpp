#include "tests/framework/sync/replica_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace strait::sync {
std::vector<LinkRow> replica_mesh(std::size_t replicas, std::uint64_t window_bytes) {
  std::vector<LinkRow> mesh(replicas);
  for (auto& row : mesh) row.resize(replicas);
  for (std::size_t a = 0; a < replicas; ++a) {
    for (std::size_t b = a + 1; b < replicas; ++b) {
      const std::string name = fmt::format("replica 0.{}~0.{}", a, b);
      auto [left, right] = memory_links({0, static_cast<std::uint32_t>(a)},
                                        {0, static_cast<std::uint32_t>(b)}, name, window_bytes);
      mesh[a][b] = std::move(left);
      mesh[b][a] = std::move(right);
    }
  }
  return mesh;
}

TinyReplica::TinyReplica(const Layout& layout, std::unique_ptr<SyncMethod> method,
                         Membership membership, LinkRow links, const Snapshot* from,
                         store::Step next, MembershipTracker* tracker)
    : weights_(static_cast<std::size_t>(layout.size())),
      gradient_(weights_.size()),
      first_moment_(weights_.size()),
      second_moment_(weights_.size()),
      slots_(layout, {weights_, gradient_, first_moment_, second_moment_}, method->traits.slots) {
  if (from == nullptr) {
    method->start(slots_);
  } else {
    for (const auto& [name, bytes] : *from) {
      std::ranges::copy(bytes, slots_.bytes(name, {0, layout.size()}).begin());
    }
  }
  engine_ = std::make_unique<SyncRounds>(std::move(method), slots_, std::move(membership),
                                         std::move(links), tracker);
  if (from != nullptr) engine_->resume(next);
}

Snapshot TinyReplica::save(store::Step steps) {
  engine_->before_model_read(steps);
  std::vector<std::string> names = {kWeights, kFirstMoment, kSecondMoment};
  for (const SlotNeed& need : slots_.needs()) {
    if (need.saved) names.push_back(need.name);
  }
  Snapshot saved;
  for (const std::string& name : names) {
    const auto bytes = std::as_const(slots_).bytes(name, {0, layout().size()});
    saved[name].assign(bytes.begin(), bytes.end());
  }
  return saved;
}

void TinyReplica::step(store::Step step, const std::vector<float>& target, float rate,
                       bool leaving) {
  engine_->gradient_begins(step);
  const std::vector<Piece>& pieces = layout().pieces();
  for (std::size_t i = pieces.size(); i-- > 0;) {
    for (auto at = static_cast<std::size_t>(pieces[i].range.first);
         at < static_cast<std::size_t>(pieces[i].range.last); ++at) {
      gradient_[at] = weights_[at] - target[at];
    }
    engine_->gradient_ready(pieces[i].range);
  }
  engine_->gradient_whole(step);
  engine_->gradient_clipped(step);
  engine_->before_update(step);
  const bool by_moment = engine_->method().update_rule(step) == UpdateRule::moment_given;
  for (std::size_t at = 0; at < weights_.size(); ++at) {
    if (by_moment) {
      weights_[at] -= rate * first_moment_[at];
      continue;
    }
    first_moment_[at] = 0.9F * first_moment_[at] + 0.1F * gradient_[at];
    second_moment_[at] = 0.9F * second_moment_[at] + 0.1F * gradient_[at] * gradient_[at];
    weights_[at] -= rate * gradient_[at];
  }
  engine_->updated(step, leaving);
}

ReplicaSet::ReplicaSet(const Layout& layout, std::size_t replicas, const Maker& maker,
                       const Wrap& wrap, const std::vector<Snapshot>& from, store::Step next,
                       std::uint64_t window_bytes) {
  auto mesh = replica_mesh(replicas, window_bytes);
  Membership membership;
  for (std::size_t i = 0; i < replicas; ++i) {
    membership.members.push_back(static_cast<std::uint32_t>(i));
  }
  for (std::size_t i = 0; i < replicas; ++i) {
    membership.mine = i;
    for (std::size_t j = 0; wrap && j < replicas; ++j) {
      if (mesh[i][j] != nullptr) mesh[i][j] = wrap(i, j, std::move(mesh[i][j]));
    }
    replicas_.push_back(std::make_unique<TinyReplica>(
        layout, maker(), membership, std::move(mesh[i]), from.empty() ? nullptr : &from[i], next));
  }
}

std::vector<std::string> ReplicaSet::in_parallel(
    const std::function<void(std::size_t, TinyReplica&)>& work) {
  std::vector<std::string> errors(size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < size(); ++i) {
    if (replicas_[i] == nullptr) continue;
    threads.emplace_back([&, i] {
      try {
        work(i, *replicas_[i]);
      } catch (const std::exception& error) {
        errors[i] = error.what();
        leave(i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

Layout tiny_layout(const std::vector<std::int64_t>& sizes) {
  std::vector<PieceSpec> specs;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    PieceSpec spec;
    spec.name = fmt::format("piece.{}", i);
    spec.shape = i == 0 ? std::vector{sizes[i]} : std::vector{sizes[i], std::int64_t{1}};
    specs.push_back(spec);
  }
  return Layout(specs);
}

}  // namespace strait::sync
