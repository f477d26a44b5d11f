#include "launcher/transfer/source_pace.h"

#include <algorithm>
#include <cmath>

#include "launcher/transfer/file_table.h"

namespace strait::transfer {
namespace {

constexpr SourcePace::Seconds kMeasureFor{0.2};
constexpr SourcePace::Seconds kInReserve{0.1};  // what hides our own reading and writing
constexpr auto kPiece = static_cast<double>(FileTable::kPieceBytes);

}  // namespace

void SourcePace::round_trip(Seconds took) {
  round_trip_ = round_trip_known_ ? std::min(round_trip_, took) : took;
  round_trip_known_ = true;
}

void SourcePace::asked(Time now) {
  if (outstanding_ == 0) {
    measured_from_ = now;
    measured_bytes_ = 0;
  }
  ++outstanding_;
}

void SourcePace::answered(Time now, std::uint64_t bytes) {
  --outstanding_;
  measured_bytes_ += bytes;
  const Seconds took = now - measured_from_;
  if (took < kMeasureFor) return;
  const double seen = static_cast<double>(measured_bytes_) / took.count();
  rate_ = rate_ == 0 ? seen : (rate_ + seen) / 2;
  measured_from_ = now;
  measured_bytes_ = 0;
}

void SourcePace::let_go() { --outstanding_; }

int SourcePace::room() const {
  const double filled = std::ceil(rate_ * (round_trip_ + kInReserve).count() / kPiece) + 1;
  return std::clamp(static_cast<int>(std::min<double>(filled, kMost)), kLeast, kMost) -
         outstanding_;
}

SourcePace::Seconds SourcePace::expected() const {
  if (rate_ == 0) return round_trip_;
  return round_trip_ + Seconds((outstanding_ + 1) * kPiece / rate_);
}

}  // namespace strait::transfer
