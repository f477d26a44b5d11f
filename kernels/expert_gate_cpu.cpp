#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/expert_gate_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

// clang-format off: highway.h comes first
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include "kernels/expert_gate.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

struct GatePair {
  Vector gate;
  Vector up;
};

HWY_INLINE Vector sigmoid_of(Vector values) {
  const Vector one = hn::Set(Lanes(), 1.0F);
  return hn::Div(one, hn::Add(one, hn::Exp(Lanes(), hn::Neg(values))));
}

// Both factors of one place of every lane, in a row of whichever order.
struct HalvesOfRow {
  std::int64_t width;
  HWY_INLINE GatePair load(const float* row, std::int64_t i) const {
    return {load_upto(row + i, width - i), load_upto(row + width + i, width - i)};
  }
  HWY_INLINE void store(const GatePair& pair, float* row, std::int64_t i) const {
    store_upto(pair.gate, row + i, width - i);
    store_upto(pair.up, row + width + i, width - i);
  }
};

struct PairsOfRow {
  std::int64_t width;
  HWY_INLINE GatePair load(const float* row, std::int64_t i) const {
    float some[2 * kMostLanes] = {};
    const std::int64_t count = std::min(lane_count(), width - i);
    const float* from = row + 2 * i;
    if (count < lane_count()) {
      std::memcpy(some, from, static_cast<std::size_t>(2 * count) * sizeof(float));
      from = some;
    }
    GatePair pair;
    hn::LoadInterleaved2(Lanes(), from, pair.gate, pair.up);
    return pair;
  }
  HWY_INLINE void store(const GatePair& pair, float* row, std::int64_t i) const {
    const std::int64_t count = std::min(lane_count(), width - i);
    if (count == lane_count()) {
      hn::StoreInterleaved2(pair.gate, pair.up, Lanes(), row + 2 * i);
      return;
    }
    float some[2 * kMostLanes];
    hn::StoreInterleaved2(pair.gate, pair.up, Lanes(), some);
    std::memcpy(row + 2 * i, some, static_cast<std::size_t>(2 * count) * sizeof(float));
  }
};

struct SiluGate {
  // The activated gate, and its derivative.
  HWY_INLINE GatePair activate(Vector gate) const {
    const Vector open = sigmoid_of(gate);
    const Vector value = hn::Mul(gate, open);
    const Vector rest = hn::Sub(hn::Set(Lanes(), 1.0F), open);
    return {value, hn::Add(open, hn::Mul(value, rest))};
  }
  HWY_INLINE Vector factor(Vector up) const { return up; }
  HWY_INLINE Vector factor_gradient(Vector gradient, Vector /*up*/) const { return gradient; }
};

// Comparisons with NaN are false, so that it stays NaN.
struct LimitedGate {
  float slope;
  float limit;
  HWY_INLINE GatePair activate(Vector gate) const {
    const Vector most = hn::Set(Lanes(), limit);
    const auto above = hn::Gt(gate, most);
    const Vector cut = hn::IfThenElse(above, most, gate);
    const Vector open = sigmoid_of(hn::Mul(cut, hn::Set(Lanes(), slope)));
    const Vector value = hn::Mul(cut, open);
    const Vector rest = hn::Sub(hn::Set(Lanes(), slope), hn::Mul(hn::Set(Lanes(), slope), open));
    const Vector derivative = hn::Add(open, hn::Mul(value, rest));
    return {value, hn::IfThenZeroElse(above, derivative)};
  }
  HWY_INLINE Vector factor(Vector up) const {
    const Vector most = hn::Set(Lanes(), limit);
    const Vector least = hn::Set(Lanes(), -limit);
    const Vector below = hn::IfThenElse(hn::Gt(up, most), most, up);
    const Vector cut = hn::IfThenElse(hn::Lt(below, least), least, below);
    return hn::Add(cut, hn::Set(Lanes(), 1.0F));
  }
  HWY_INLINE Vector factor_gradient(Vector gradient, Vector up) const {
    return hn::IfThenZeroElse(hn::Gt(hn::Abs(up), hn::Set(Lanes(), limit)), gradient);
  }
};

template <class Order, class Gate>
void gate_rows(const cpu::ExpertGate& all, std::int64_t first, std::int64_t last,
               const Order& order, const Gate& gate) {
  for (std::int64_t row = first; row < last; ++row) {
    const float* const inner = all.inner + row * 2 * all.width;
    const Vector weight = hn::Set(Lanes(), all.weights[row]);
    float* const product = all.product + row * all.width;
    for (std::int64_t i = 0; i < all.width; i += lane_count()) {
      const GatePair pair = order.load(inner, i);
      const Vector value = hn::Mul(gate.activate(pair.gate).gate, gate.factor(pair.up));
      store_upto(hn::Mul(weight, value), product + i, all.width - i);
    }
  }
}

template <class Order, class Gate>
void gate_gradients(const cpu::ExpertGateGradient& all, std::int64_t first, std::int64_t last,
                    const Order& order, const Gate& gate) {
  const cpu::ExpertGate& forward = all.forward;
  const std::int64_t width = forward.width;
  for (std::int64_t row = first; row < last; ++row) {
    const Vector weight = hn::Set(Lanes(), forward.weights[row]);
    Vector sum = hn::Zero(Lanes());
    for (std::int64_t i = 0; i < width; i += lane_count()) {
      const GatePair pair = order.load(forward.inner + row * 2 * width, i);
      const GatePair activated = gate.activate(pair.gate);
      const Vector factor = gate.factor(pair.up);
      const Vector value = hn::Mul(activated.gate, factor);
      const Vector slope = load_upto(all.slopes + row * width + i, width - i);
      // Lanes after the end of a row are zero in `slope`.
      sum = hn::Add(sum, hn::Mul(slope, value));
      const Vector weighted = hn::Mul(slope, weight);
      const GatePair gradient{hn::Mul(hn::Mul(weighted, factor), activated.up),
                              gate.factor_gradient(hn::Mul(weighted, activated.gate), pair.up)};
      order.store(gradient, all.inner_gradient + row * 2 * width, i);
      if (forward.product != nullptr) {
        store_upto(hn::Mul(weight, value), forward.product + row * width + i, width - i);
      }
    }
    all.weight_gradient[row] = sum_of(sum);
  }
}

void expert_gate_of(const cpu::ExpertGate& all, std::int64_t first, std::int64_t last) {
  if (all.limit > 0) {
    gate_rows(all, first, last, PairsOfRow{all.width}, LimitedGate{all.slope, all.limit});
  } else {
    gate_rows(all, first, last, HalvesOfRow{all.width}, SiluGate());
  }
}

void expert_gate_gradient_of(const cpu::ExpertGateGradient& all, std::int64_t first,
                             std::int64_t last) {
  const cpu::ExpertGate& forward = all.forward;
  if (forward.limit > 0) {
    gate_gradients(all, first, last, PairsOfRow{forward.width},
                   LimitedGate{forward.slope, forward.limit});
  } else {
    gate_gradients(all, first, last, HalvesOfRow{forward.width}, SiluGate());
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(expert_gate_of);
HWY_EXPORT(expert_gate_gradient_of);

void cpu::expert_gate(const ExpertGate& all, std::int64_t first, std::int64_t last) {
  HWY_DYNAMIC_DISPATCH(expert_gate_of)(all, first, last);
}

void cpu::expert_gate_gradient(const ExpertGateGradient& all, std::int64_t first,
                               std::int64_t last) {
  HWY_DYNAMIC_DISPATCH(expert_gate_gradient_of)(all, first, last);
}

}  // namespace strait::kernels
#endif
