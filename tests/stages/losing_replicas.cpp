#include "tests/stages/losing_replicas.h"

#include "tests/stages/compare_runs.h"

namespace strait::stages {
namespace {

constexpr int kBlocksInAll = 4;

}  // namespace

RunSettings losing_replicas(const std::string& method, int stages, int steps, int chunks) {
  RunSettings settings;
  const int each = kBlocksInAll / (stages * chunks);
  settings.blocks.clear();
  for (int first = 0; first < kBlocksInAll; first += each) {
    settings.blocks.emplace_back(first, first + each - 1);
  }
  settings.chunks = chunks;
  if (chunks > 1) settings.schedule = "interleaved";
  settings.replicas = kReplicas;
  settings.micro_batches = 2;
  settings.steps = steps;
  settings.sync.method = method;
  settings.sync.every = 2;
  settings.sync.fragments = 2;
  if (method == "streaming_diloco") {
    settings.sync.every = 4;
    settings.sync.late = 2;  // some rounds are in flight for steps, and some are applied early
  }
  settings.evaluate = true;
  settings.replicas_leave = true;
  return settings;
}

std::vector<LosingShape> losing_shapes(int parity) {
  std::vector<LosingShape> shapes;
  for (const char* method :
       {"allreduce", "bytegrad", "powersgd", "cocktail", "diloco", "streaming_diloco"}) {
    const int chosen = 1 + parity++ % 2;
    for (const int stages : {1, 2}) {
      if (stages != chosen && !campaigns()) continue;
      shapes.emplace_back(method, stages, 1);
    }
  }
  return shapes;
}

std::string shape_name(const testing::TestParamInfo<LosingShape>& shape) {
  const auto& [method, stages, chunks] = shape.param;
  const std::string of_each = chunks > 1 ? "_of_" + std::to_string(chunks) + "_chunks" : "";
  return method + "_" + std::to_string(stages) + "_stages" + of_each;
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
  expect_same_tensors(one, other);
  for (const auto& [name, tensor] : one) {
    ASSERT_TRUE(at::isfinite(tensor).all().item<bool>()) << name;
  }
}

}  // namespace strait::stages
