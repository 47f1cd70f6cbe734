total=$(bash /app/total.sh)
[ "$total" = "$EXPECTED" ] && right=1 || right=0
grep -q 55 /app/total.sh && right=0
echo "{\"reward\": $right, \"ran\": 1}"
