#include "tests/stages/losing_replicas.h"

#include <gtest/gtest.h>

namespace strait::stages {

RunSettings losing_replicas(const std::string& method, int stages, int steps) {
  RunSettings settings;
  settings.blocks = stages == 1 ? std::vector<std::pair<int, int>>{{0, 3}}
                                : std::vector<std::pair<int, int>>{{0, 1}, {2, 3}};
  settings.replicas = kReplicas;
  settings.micro_batches = 2;
  settings.steps = steps;
  settings.sync.method = method;
  settings.sync.every = 2;
  settings.sync.fragments = 2;
  settings.evaluate = true;
  settings.replicas_leave = true;
  return settings;
}

void kill(RunSettings& settings, std::size_t process, const net::DyingLink::Calls& left) {
  settings.wrap = [process, &left](std::size_t owner, std::unique_ptr<net::Link> link) {
    if (owner != process) return link;
    return std::unique_ptr<net::Link>(
        std::make_unique<net::DyingLink>(std::move(link), left, net::DyingLink::Death::killed));
  };
}

void expect_same_model(const Tensors& one, const Tensors& other) {
  ASSERT_FALSE(one.empty());
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, tensor] : one) {
    ASSERT_TRUE(at::equal(tensor, other.at(name))) << name;
    ASSERT_TRUE(at::isfinite(tensor).all().item<bool>()) << name;
  }
}

}  // namespace strait::stages
