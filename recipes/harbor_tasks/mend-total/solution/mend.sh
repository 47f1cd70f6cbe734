sed -i 's/NR > 1 //' /app/total.sh
