#include "stages/boundary_traffic.h"

#include <c10/util/Exception.h>

namespace strait::stages {
namespace {

codec::Traffic subtract_traffic(codec::Traffic after, const codec::Traffic& before) {
  after.raw_bytes -= before.raw_bytes;
  after.payload_bytes -= before.payload_bytes;
  after.rows -= before.rows;
  after.hits -= before.hits;
  after.first_visits -= before.first_visits;
  after.evictions -= before.evictions;
  after.resends -= before.resends;
  after.refused_rows -= before.refused_rows;
  after.value_squares -= before.value_squares;
  after.change_squares -= before.change_squares;
  after.changed_value_squares -= before.changed_value_squares;
  after.error_squares -= before.error_squares;
  return after;  // cache_bytes is a level, not a sum
}

}  // namespace

std::vector<BoundaryTraffic> difference(std::span<const BoundaryTraffic> after,
                                        std::span<const BoundaryTraffic> before) {
  TORCH_INTERNAL_ASSERT(after.size() == before.size(), "readings of different ends");
  std::vector<BoundaryTraffic> shares(after.begin(), after.end());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i].traffic = subtract_traffic(after[i].traffic, before[i].traffic);
  }
  return shares;
}

}  // namespace strait::stages
