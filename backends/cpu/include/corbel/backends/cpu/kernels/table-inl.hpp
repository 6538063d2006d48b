// The level's table: constant data, nothing runs at start-up.

template <std::size_t... kTypes>
constexpr KernelTable make_table(std::index_sequence<kTypes...>) {
  return {
      &quantize_row,
      {&linear<kernel_type(static_cast<DType>(kTypes))>...},
      kRowsForPanels,
      kPanelGroups,
      {&attention<hal::KvType::kF32>, &attention<hal::KvType::kBF16>, &attention<hal::KvType::kF16>},
      {&attention_chunk<hal::KvType::kF32>, &attention_chunk<hal::KvType::kBF16>, &attention_chunk<hal::KvType::kF16>},
      &join_chunks,
      {&kv_append<hal::KvType::kF32>, &kv_append<hal::KvType::kBF16>, &kv_append<hal::KvType::kF16>},
      &norm_row,
      &rope_head,
      &activation_row,
      &add_row,
      &scale_row,
      &softcap_row,
      &clamp_row,
      &gate_row,
      &round_row,
      &weighted_sum_row,
  };
}

inline constexpr KernelTable kTable = make_table(std::make_index_sequence<kNumDTypes>());
