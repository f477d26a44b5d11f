#include <strait/partition.h>

#include <stdexcept>

// Partitions of six layers (a model of four blocks) into two stages, each wrong in its own way.
namespace {

using namespace strait::partition;

Assignment cut(std::vector<Layers> upper, std::vector<Layers> lower) {
  return {{{std::move(upper)}, {std::move(lower)}}};
}

Assignment by_replica(const Question& question) {
  const int last = 2 + question.replica;
  return cut({{0, last}}, {{last + 1, 5}});
}

Assignment too_large(const Question& question) {
  if (question.cluster.hosts.front().memory_bytes <= 0) throw std::logic_error("no memory given");
  return cut({{0, 2}}, {{3, 5}});
}

void offer(strait::Extensions& strait) {
  strait.partition("missing", [](const Question&) { return cut({{0, 2}}, {{4, 5}}); });
  strait.partition("twice", [](const Question&) { return cut({{0, 3}}, {{3, 5}}); });
  strait.partition("out_of_order", [](const Question&) { return cut({{3, 5}}, {{0, 2}}); });
  strait.partition("empty", [](const Question&) { return cut({{0, 5}}, {}); });
  strait.partition("chunks", [](const Question&) {
    return cut({{0, 1}, {4, 4}}, {{2, 3}, {5, 5}});
  });
  strait.partition("stranger", [](const Question&) {
    Assignment answer = cut({{0, 2}}, {{3, 5}});
    answer.stages[1].host = 7;
    return answer;
  });
  strait.partition("throws", [](const Question&) -> Assignment {
    throw std::runtime_error("the stars are not right");
  });
  strait.partition("by_replica", by_replica);
  strait.partition("too_large", too_large);
}

}  // namespace

STRAIT_PLUGIN(offer)
