#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "framework/sync/float_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/methods.h"
#include "framework/sync/random_choice.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// Slots, named as in checkpoints: the residual, and the right factors, each at its matrix's range:
// the start of the next round.
constexpr const char* kOwedGradient = "owed";
constexpr const char* kFactor = "factor";
constexpr std::int64_t kMaxRank = 1024;
constexpr const char* kLowRankPart = "a factor of a gradient";

// How a tensor travels at a rank: as a matrix of its first dimension × all others, or exactly.
struct LowRankShape {
  LowRankShape(const PieceSpec& spec, std::size_t rank) {
    rows = spec.shape.empty() ? 1 : static_cast<std::size_t>(spec.shape.front());
    columns = 1;
    for (std::size_t i = 1; i < spec.shape.size(); ++i) {
      columns *= static_cast<std::size_t>(spec.shape[i]);
    }
    exact = (rows + columns) * rank >= rows * columns;
    left = exact ? rows * columns : rows * rank;
    right = exact ? 0 : columns * rank;
  }
  std::size_t rows = 0;
  std::size_t columns = 0;
  bool exact = false;
  // Values that a replica contributes in exchange 0 and 1.
  std::size_t left = 0;
  std::size_t right = 0;
};

bool low_rank_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// A matrix row by row, as the sum of two vectors: a gradient and the residual of earlier ones.
struct ResidualMatrix {
  ResidualMatrix(const LowRankShape& shape, const Part& part, const Slots& slots)
      : gradient(within(slots.values(kGradient), part.range)),
        residual(within(slots.values(kOwedGradient), part.range)),
        rows(shape.rows),
        columns(shape.columns) {}
  std::span<const float> gradient;
  std::span<const float> residual;
  std::size_t rows;
  std::size_t columns;
};

// Factors lie column by column: `rank` columns one after the other. Every sum has a fixed order, so
// all machines compute the same bits.

// A column that keeps less than this share of its length is the rounding error of those before it.
constexpr double kDependent = 1e-5;

void row_with_residual(const ResidualMatrix& matrix, std::size_t row, std::span<float> to) {
  const auto gradient = matrix.gradient.subspan(row * matrix.columns, matrix.columns);
  const auto residual = matrix.residual.subspan(row * matrix.columns, matrix.columns);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = gradient[i] + residual[i];
}

std::span<const float> column(std::span<const float> factor, std::size_t rank, std::size_t number) {
  const std::size_t length = factor.size() / rank;
  return factor.subspan(number * length, length);
}

// In sixteen sums that a compiler can keep in one register, added pairwise in a fixed order.
float lane_product(std::span<const float> a, std::span<const float> b) {
  constexpr std::size_t kProductLanes = 16;
  std::array<float, kProductLanes> sums{};
  std::size_t i = 0;
  for (; i + kProductLanes <= a.size(); i += kProductLanes) {
    for (std::size_t lane = 0; lane < kProductLanes; ++lane)
      sums[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < a.size(); ++i, ++lane) sums[lane] += a[i] * b[i];
  for (std::size_t half = kProductLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// In double precision, because orthogonality is lost by cancellation.
double exact_product(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += double{a[i]} * double{b[i]};
  }
  return sum;
}

void scale(std::span<float> values, double by) {
  for (float& value : values) value = static_cast<float>(double{value} * by);
}

void subtract(std::span<const float> what, double times, std::span<float> from) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<float>(double{from[i]} - times * double{what[i]});
  }
}

// rows × rank: the matrix times `right` (columns × rank).
std::vector<float> left_factor(const ResidualMatrix& matrix, std::span<const float> right,
                               std::size_t rank) {
  std::vector<float> left(matrix.rows * rank);
  std::vector<float> values(matrix.columns);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    row_with_residual(matrix, row, values);
    for (std::size_t k = 0; k < rank; ++k) {
      left[k * matrix.rows + row] = lane_product(values, column(right, rank, k));
    }
  }
  return left;
}

// columns × rank: the matrix, transposed, times `left` (rows × rank).
std::vector<float> right_factor(const ResidualMatrix& matrix, std::span<const float> left,
                                std::size_t rank) {
  std::vector<float> right(matrix.columns * rank);
  std::vector<float> values(matrix.columns);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    row_with_residual(matrix, row, values);
    for (std::size_t k = 0; k < rank; ++k) {
      const float weight = left[k * matrix.rows + row];
      // Row by row, so that the matrix is read in the order of memory.
      float* to = right.data() + k * matrix.columns;
      for (std::size_t i = 0; i < values.size(); ++i) to[i] += weight * values[i];
    }
  }
  return right;
}

// Makes the columns orthogonal and of length one. A column that depends on those before it becomes
// zero. With a value that is not finite, all become NaN.
void orthonormalise(std::span<float> factor, std::size_t rank) {
  if (!low_rank_finite(factor)) {
    std::ranges::fill(factor, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const std::size_t length = factor.size() / rank;
  for (std::size_t k = 0; k < rank; ++k) {
    const std::span<float> own = factor.subspan(k * length, length);
    const double before = std::sqrt(exact_product(own, own));
    // Normalised first, so that kDependent compares with a length of one, and squares do not
    // overflow.
    if (before > 0) scale(own, 1 / before);
    // Twice, because rounding leaves a remainder the first time ("twice is enough").
    for (int time = 0; time < 2; ++time) {
      for (std::size_t ahead = 0; ahead < k; ++ahead) {
        const auto other = column(factor, rank, ahead);
        subtract(other, exact_product(other, own), own);
      }
    }
    const double left = std::sqrt(exact_product(own, own));
    scale(own, left > kDependent ? 1 / left : 0);
  }
}

// A row of left × right transposed.
void product_row(std::span<const float> left, std::span<const float> right, std::size_t rank,
                 std::size_t row, std::span<float> to) {
  std::fill(to.begin(), to.end(), 0.0F);
  for (std::size_t k = 0; k < rank; ++k) {
    const float weight = column(left, rank, k)[row];
    const auto from = column(right, rank, k);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += weight * from[i];
  }
}

// Parts are pieces, the last first: the backward pass completes gradients in that order.
const Piece& piece_of(const Part& part, const Slots& slots) {
  const auto& pieces = slots.layout().pieces();
  return pieces[pieces.size() - 1 - part.index];
}

// The range of the factor slot that holds the matrix's right factor: the begin of its own range.
Range factor_range(const LowRankShape& shape, const Part& part) {
  return {part.range.first, part.range.first + static_cast<std::int64_t>(shape.right)};
}

std::vector<float> low_rank_floats(const net::Frame& frame, std::size_t count) {
  std::vector<float> values(count);
  read_floats(frame, false, values, kLowRankPart);
  return values;
}

// Gradients of matrices as products of two thin factors, in two exchanges: the sum of all replicas'
// left factors (gradient × the last round's right factor) is made orthonormal by the owner of the
// matrix, then the sum of their right factors (gradient transposed × left) gives the result.
// What a replica's own factors leave out of its gradient is added to its next one. Vectors, and
// matrices too small to gain, are summed exactly. One member reduces a whole matrix.
class PowerSgd final : public SyncMethod {
 public:
  explicit PowerSgd(const SyncSettings& settings)
      // The factor is only a starting point, so bfloat16 is precise enough.
      : SyncMethod(
            {.slots = {{.name = kOwedGradient},
                       {.name = kFactor, .width = SlotNeed::Width::bfloat16, .shared = true}},
             .trainer_slots = {kGradient},
             .sums_gradients = true}),
        seed_(settings.seed),
        rank_(static_cast<std::size_t>(settings.rank)) {
    if (settings.rank < 1 || settings.rank > kMaxRank) {
      throw SyncError(SyncError::Kind::setting, "{}: rank is {}; it must be from 1 to {}",
                      settings.method, settings.rank, kMaxRank);
    }
  }

  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override {
    if (point.hook != Hook::gradient) return std::nullopt;
    RoundPlan plan;
    plan.exchanges = 2;
    // A matrix is reduced whole, because orthonormalisation needs all of its rows. Matrices differ
    // in size, so each goes to the owner with the least to receive so far.
    std::vector<std::size_t> load(membership.count());
    for (std::size_t i = layout.pieces().size(); i-- > 0;) {
      const Piece& piece = layout.pieces()[i];
      const LowRankShape shape(piece.spec, rank_);
      const auto least = std::ranges::min_element(load);
      *least += shape.left + shape.right;
      plan.ranges.push_back(piece.range);
      plan.owners.push_back(static_cast<std::size_t>(least - load.begin()));
    }
    return plan;
  }
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override {
    const LowRankShape shape(piece_of(part, slots).spec, rank_);
    if (shape.exact) {
      // Nothing in the second exchange: the sum is complete after the first.
      if (round.exchange == 0)
        append_floats(within(slots.values(kGradient), part.range), false, out);
      return;
    }
    const ResidualMatrix matrix(shape, part, slots);
    if (round.exchange == 0) {
      append_floats(left_factor(matrix, first_right_factor(round, part, slots), rank_), false, out);
    } else {
      const auto left = low_rank_floats(round.result(part), shape.left);
      append_floats(right_factor(matrix, left, rank_), false, out);
    }
  }
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override {
    const LowRankShape shape(piece_of(part, slots).spec, rank_);
    const std::size_t count = round.exchange == 0 ? shape.left : shape.right;
    std::vector<float> sum = sum_of(contributions, count, [](auto bytes, std::span<float> to) {
      read_floats(bytes, false, to, kLowRankPart);
    });
    // The second exchange sums right factors, which must stay as they are.
    if (!shape.exact && round.exchange == 0) orthonormalise(sum, rank_);
    append_floats(sum, false, out);
  }
  void decode(const Round& round, const Part& part, const Slots& slots) override {
    const LowRankShape shape(piece_of(part, slots).spec, rank_);
    check_floats(round.exchanges.back().results[part.index],
                 round.exchange == 0 ? shape.left : shape.right, false, kLowRankPart);
  }
  void apply(const Round& round, Slots& slots) override {
    apply_parts(round, slots, [&](const Part& part) {
      const LowRankShape shape(piece_of(part, slots).spec, rank_);
      if (!shape.exact) return apply_matrix(round, part, shape, slots);
      const auto gradient = within(slots.values(kGradient), part.range);
      read_floats(round.result(part), false, gradient, kLowRankPart);
    });
  }

 private:
  void apply_matrix(const Round& round, const Part& part, const LowRankShape& shape,
                    Slots& slots) const {
    const auto left = low_rank_floats(round.result(part), shape.left);
    const auto right = low_rank_floats(round.exchanges.back().results[part.index], shape.right);
    const auto own = low_rank_floats(round.exchanges.back().own[part.index], shape.right);
    const auto gradient = within(slots.values(kGradient), part.range);
    const auto residual = within(slots.values(kOwedGradient), part.range);
    // The gradient of some replica is not finite, so the step will be skipped, which restores the
    // other slots that this round changes.
    if (!low_rank_finite(left) || !low_rank_finite(right)) {
      std::ranges::fill(gradient, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    std::vector<float> sent(shape.columns);
    for (std::size_t row = 0; row < shape.rows; ++row) {
      product_row(left, own, rank_, row, sent);
      const auto gradient_row = gradient.subspan(row * shape.columns, shape.columns);
      const auto residual_row = residual.subspan(row * shape.columns, shape.columns);
      for (std::size_t i = 0; i < sent.size(); ++i) {
        residual_row[i] = gradient_row[i] + residual_row[i] - sent[i];
      }
      product_row(left, right, rank_, row, gradient_row);
    }
    slots.store(kFactor, factor_range(shape, part), right);
  }
  // A column of zeros (at first all; later those of a matrix of lower rank) starts at random, the
  // same on all replicas.
  std::vector<float> first_right_factor(const Round& round, const Part& part,
                                        const Slots& slots) const {
    const PieceSpec& spec = piece_of(part, slots).spec;
    const LowRankShape shape(spec, rank_);
    std::vector<float> factor(shape.right);
    slots.load(kFactor, factor_range(shape, part), factor);
    const std::uint64_t name = XXH3_64bits(spec.name.data(), spec.name.size());
    for (std::size_t k = 0; k < rank_; ++k) {
      const auto column = std::span(factor).subspan(k * shape.columns, shape.columns);
      if (std::ranges::any_of(column, [](float value) { return value != 0; })) continue;
      KeyedStream random{seed_, name, static_cast<std::uint64_t>(store::number(round.opened.step)),
                         k};
      std::ranges::generate(column, [&] { return random.centred(); });
    }
    return factor;
  }

  std::uint64_t seed_;
  std::size_t rank_;
};

Forecast low_rank_forecast(const ForecastInput& input) {
  double values = 0;
  for (const Piece& piece : input.layout.pieces()) {
    const LowRankShape shape(piece.spec, static_cast<std::size_t>(input.settings.rank));
    values += static_cast<double>(shape.left + shape.right);
  }
  // A piece is reduced whole: a frame to its owner and back, in two exchanges. Over all owners that
  // is as many frames as members times fewer ranges in shares would take.
  const double ranges = 2 * static_cast<double>(input.layout.pieces().size()) / input.members;
  return every_step(input.shard_reduce_bytes(values * sizeof(float), ranges));
}

}  // namespace

MethodOffer powersgd() {
  return {.name = "powersgd",
          .make = made<PowerSgd>,
          .reads = {"rank"},
          .forecast = low_rank_forecast,
          .coding_cost =
              [](const SyncSettings& settings) {
                const auto rank = static_cast<double>(settings.rank);
                return CodingCost{1.3 * rank, 1 + 1.2 * rank};
              },
          .rank = 50};
}

}  // namespace strait::sync
