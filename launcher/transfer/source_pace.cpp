#include "launcher/transfer/source_pace.h"

#include <algorithm>
#include <cmath>

#include "launcher/transfer/chunk_table.h"

namespace strait::transfer {
namespace {

constexpr SourceWindow::Seconds kMeasureFor{0.2};
constexpr SourceWindow::Seconds kInReserve{0.1};  // what hides our own reading and writing
constexpr auto kChunk = static_cast<double>(ChunkTable::kChunkBytes);

}  // namespace

void SourceWindow::round_trip(Seconds took) {
  round_trip_ = round_trip_known_ ? std::min(round_trip_, took) : took;
  round_trip_known_ = true;
}

void SourceWindow::asked(Time now) {
  if (outstanding_ == 0) {
    measured_from_ = now;
    measured_bytes_ = 0;
  }
  ++outstanding_;
}

void SourceWindow::answered(Time now, std::uint64_t bytes) {
  --outstanding_;
  measured_bytes_ += bytes;
  const Seconds took = now - measured_from_;
  if (took < kMeasureFor) return;
  const double seen = static_cast<double>(measured_bytes_) / took.count();
  rate_ = rate_ == 0 ? seen : (rate_ + seen) / 2;
  measured_from_ = now;
  measured_bytes_ = 0;
}

void SourceWindow::let_go() { --outstanding_; }

int SourceWindow::room() const {
  const double filled = std::ceil(rate_ * (round_trip_ + kInReserve).count() / kChunk) + 1;
  return std::clamp(static_cast<int>(std::min<double>(filled, kMost)), kLeast, kMost) -
         outstanding_;
}

SourceWindow::Seconds SourceWindow::expected() const {
  if (rate_ == 0) return round_trip_;
  return round_trip_ + Seconds((outstanding_ + 1) * kChunk / rate_);
}

}  // namespace strait::transfer
